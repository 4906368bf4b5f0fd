"""Views of a pipeline, as plain functions of its log."""
