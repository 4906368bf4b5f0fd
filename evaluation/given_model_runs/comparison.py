"""Comparison of a run's arms: what was observed, and how far each is from the run's model. Pure.

Intervals are the middle 95 % of a paired bootstrap: windows are resampled within each domain, the same
for all arms (`evaluation/bootstrap.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluation.bootstrap import Counts
from evaluation.observing import Observe, Observed
from evaluation.paired_bits import draws, figure, mean, resampled
from runs.event_types import Figure

#: Slices that are measured on: what is chosen by, and what all arms are compared on.
CHOOSING, TEST = "selection", "test"

Seen = Mapping[str, Observed]
#: Arm → bits per byte in each resample of the windows.
Drawn = Mapping[str, Counts]


def observed(state: Any, tasks: Mapping[str, Observe]) -> dict[str, Observed]:
    """Return arm → what was observed, of the tasks that are done."""
    found = {arm: state.answers.get(task.key) for arm, task in tasks.items()}
    return {arm: event for arm, event in found.items() if isinstance(event, Observed)}


def windows(event: Observed) -> int:
    """Return the number of windows that a model was measured on."""
    return sum(map(len, event.items.values()))


def drawn(seen: Seen, purpose: str, seed: int) -> Drawn:
    """Return arm → bits per byte in each resample of the windows, which all arms have in common."""
    counts = {domain: len(some) for domain, some in next(iter(seen.values())).items.items()}
    resamples = draws(counts, purpose, seed)
    return {arm: resampled(event, resamples) for arm, event in seen.items()}


def leads(seen: Seen, ours: str, purpose: str, seed: int) -> dict[str, Figure]:
    """Return arm → the bits per byte that it needs more than the arm `ours`, with the interval."""
    if ours not in seen:
        return {}
    found, own = drawn(seen, purpose, seed), mean(seen[ours])
    return {
        arm: figure(mean(event) - own, found[arm] - found[ours], windows(event))
        for arm, event in seen.items()
        if arm != ours
    }
