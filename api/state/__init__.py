"""Runs as routes read them: folded once, and as plain data."""
