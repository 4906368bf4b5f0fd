"""The work of a compression's tasks."""
