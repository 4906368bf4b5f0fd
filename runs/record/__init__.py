"""Records that every run has: its events, those that users ask for, its lineage, its spending. Pure."""
