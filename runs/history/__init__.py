"""Histories of runs: reading, cutting, checking and keeping them folded."""
