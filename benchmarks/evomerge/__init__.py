"""Comparisons of searches with those of others, and the worlds that they search in."""
