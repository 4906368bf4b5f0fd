"""Speed and results of training."""
