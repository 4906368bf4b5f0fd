"""A run of EvoMerge: its events, the fold, the decision and the audit, all pure."""
