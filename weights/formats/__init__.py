"""Formats of other programs that a model folder is written in."""
