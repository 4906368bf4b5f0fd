"""Databases that a log is stored in, one file each: SQLite, PostgreSQL."""
