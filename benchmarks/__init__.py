"""Runnable benchmarks: each prints ratios measured in one run.

Machines are noisy, so absolute times are only context. Benchmarks may set the constants of a method.
"""

import os

from runs.kinds.kind import EXPERIMENT

os.environ.setdefault(EXPERIMENT, "1")
