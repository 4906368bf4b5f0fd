"""A run of EvoMerge: its events, the fold, the decision, the audit. Pure."""
