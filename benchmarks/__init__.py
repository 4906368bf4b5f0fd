"""Runnable comparisons. Each prints ratios from one run; machines are noisy, absolute times are context."""
