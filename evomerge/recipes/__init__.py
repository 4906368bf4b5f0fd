"""Recipes: what a candidate is, as a Merkle graph of merges. Pure."""
