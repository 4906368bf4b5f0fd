"""The work of a merging run that needs weights: one task of a run, or one command."""
