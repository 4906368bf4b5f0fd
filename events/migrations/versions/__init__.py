"""Revisions of the log's tables, one per file; a merged revision is never edited."""
