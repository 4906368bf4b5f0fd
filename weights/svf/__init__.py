"""Singular values of a model's matrices, and vectors that scale them (SVF, arXiv 2501.06252)."""
