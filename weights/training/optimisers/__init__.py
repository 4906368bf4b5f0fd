"""Optimisers, one algorithm a file."""
