"""Thoughts before tokens (Quiet-STaR, arXiv 2403.09629): the model that thinks, and its files."""
