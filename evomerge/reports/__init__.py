"""What is shown of a run: report, tables, lists, W&B rows, notebooks. Reads the log only."""
