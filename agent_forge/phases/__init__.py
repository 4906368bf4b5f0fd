"""Phases by the import paths of docs/documents.md."""
