"""The command `forge`. Nothing at the top of these modules imports torch or sqlmodel."""
