"""The work that needs weights: one task of a run, or one command."""
