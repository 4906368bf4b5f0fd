"""Phases by the source documents' paths."""
