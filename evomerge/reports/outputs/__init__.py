"""What a merging run writes for others: tables, notebook, W&B rows, recipe file."""
