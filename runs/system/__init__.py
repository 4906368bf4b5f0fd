"""Processes, files, environment variables and text from outside, handled safely."""
