"""Merging by a config file, as mergekit has it: `forge merge`, out of core."""
