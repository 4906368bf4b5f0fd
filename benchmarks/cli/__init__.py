"""Time of commands."""
