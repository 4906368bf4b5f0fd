"""Doing what a run decides, and what users ask for: the part with effects.

docs/map.md has a line for every module.
"""
