"""Setting of how threads wait for each other between two parallel parts of a computation.

By default OpenMP's threads spin, which takes the processor from the work that they wait for as soon as
other processes want the processor too (docs/benchmarks.md). So this program's threads sleep, unless
the user says otherwise. OpenMP reads its environment when torch is imported; this module does not
import torch.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

#: Variables by which a user decides: of OpenMP, of libgomp (torch on Linux), of libomp (macOS).
DECIDES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def sleep_by_default(env: MutableMapping[str, str] = os.environ) -> None:
    """Make waiting threads sleep, here and in child processes, unless the user decided."""
    if not any(env.get(name) for name in DECIDES):
        env["OMP_WAIT_POLICY"] = "PASSIVE"


def said(env: MutableMapping[str, str] = os.environ) -> tuple[bool, str]:
    """Return True if threads sleep, and the variables that say so."""
    settings = [f"{name}={env[name]}" for name in DECIDES if env.get(name)]
    sleeps = env.get("OMP_WAIT_POLICY", "").strip().upper() == "PASSIVE"
    counts = [env[name].strip() for name in DECIDES[1:] if env.get(name)]
    if counts:  # these variables override the policy
        sleeps = counts == ["0"] * len(counts)
    return sleeps, ", ".join(settings) or "nothing is set"
