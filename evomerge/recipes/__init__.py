"""Recipes: pure descriptions of candidates, as a Merkle graph of merges."""
