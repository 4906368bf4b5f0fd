"""Lists that follow the log: runs and models, as tables."""
