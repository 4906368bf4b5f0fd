"""Merging: from a recipe and its sources to weights, in memory."""
