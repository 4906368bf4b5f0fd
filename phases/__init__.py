"""Phases other than EvoMerge, one folder each."""
