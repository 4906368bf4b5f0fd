"""Outputs of a merging run: tables, notebook, W&B rows, recipe file."""
