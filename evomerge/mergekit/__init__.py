"""Merges by a config file in mergekit's format: `forge merge`, out of core."""
