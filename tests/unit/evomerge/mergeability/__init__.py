"""Tests of what is told of a merge before a search."""
