"""Alembic's environment and the revisions of the log's tables."""
