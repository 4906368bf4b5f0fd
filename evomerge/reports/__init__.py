"""Views of a run, from its log only: report, tables, lists, W&B rows, notebooks."""
