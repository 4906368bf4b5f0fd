"""Runnable benchmarks: each prints ratios measured in one run.

Machines are noisy, so absolute times are only context.
"""
