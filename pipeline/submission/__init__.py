"""Submission of a pipeline: its file and names, checks before anything starts, what it will cost."""
