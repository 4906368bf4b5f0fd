"""Runnable comparisons: each prints ratios from one run.

Machines are noisy; absolute times are context.
"""
