"""Comparison of a run's arms: what was observed, and how far each is from the run's model. Pure.

Intervals are the middle 95 % of a paired bootstrap: windows are resampled within each domain, the same
for all arms (`evaluation/measures/bootstrap.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evaluation.measures.bootstrap import Counts
from runs.event_types import Figure
from runs.panels.shapes import Metric
from studies.events import Arm
from studies.observing import Observe, Observed
from studies.paired_bits import draws, figure, mean, resampled
from studies.training_panels import BITS

#: Slices that are measured on: what is chosen by, and what all arms are compared on.
CHOOSING, TEST = "selection", "test"

Seen = Mapping[str, Observed]
#: Arm → bits per byte in each resample of the windows.
Drawn = Mapping[str, Counts]


def observed(state: Any, tasks: Mapping[str, Observe]) -> dict[str, Observed]:
    """Return arm → what was observed, of the tasks that are done."""
    answers = {arm: state.answers.get(task.key) for arm, task in tasks.items()}
    return {arm: event for arm, event in answers.items() if isinstance(event, Observed)}


def windows(event: Observed) -> int:
    """Return the number of windows that a model was measured on."""
    return sum(map(len, event.items.values()))


def drawn(observations: Seen, purpose: str, seed: int) -> Drawn:
    """Return arm → bits per byte in each resample of the windows, which all arms have in common."""
    counts = {
        domain: len(items) for domain, items in next(iter(observations.values())).items.items()
    }
    resamples = draws(counts, purpose, seed)
    return {arm: resampled(event, resamples) for arm, event in observations.items()}


@dataclass(frozen=True)
class Scale:
    """Measure that arms are compared by: figure of a measurement, and figure in resamples."""

    metric: Metric
    mean: Callable[[Observed], float]
    #: Measurement → number of items that are resampled.
    count: Callable[[Observed], int]
    #: Measurements, purpose and seed → arm → figure in each resample.
    drawn: Callable[[Seen, str, int], Drawn]
    #: Word for the items.
    items: str = "windows"


BITS_PER_BYTE = Scale(BITS, mean, windows, drawn)


def leads(
    observations: Seen, own_arm: str, purpose: str, seed: int, scale: Scale = BITS_PER_BYTE
) -> dict[str, Figure]:
    """Return arm → what it needs more than the arm `own_arm`, with the interval."""
    if own_arm not in observations:
        return {}
    arm_draws, own_mean = (
        scale.drawn(observations, purpose, seed),
        scale.mean(observations[own_arm]),
    )
    return {
        arm: figure(
            scale.mean(event) - own_mean, arm_draws[arm] - arm_draws[own_arm], scale.count(event)
        )
        for arm, event in observations.items()
        if arm != own_arm
    }


def drift(before: Observed, after: Observed) -> float:
    """Return the largest relative change of bits per byte of a domain, up or down."""
    return max(abs(after.values[domain] / bits - 1) for domain, bits in before.values.items())


def arms(observations: Seen) -> dict[str, Arm]:
    """Return arm → what was compared, as the event of the end has it."""
    return {
        arm: Arm(recipe_id=event.recipe_id, bits_per_byte=event.values)
        for arm, event in observations.items()
    }


def table(rows: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return arm → domain → bits per byte as lines of text, with means."""
    domains = list(next(iter(rows.values())))
    out = ["bits per byte (lower is better), test slice:"]
    out.append(f"{'':10s}" + "".join(f"{d:>10s}" for d in (*domains, "mean")))
    for name, row in rows.items():
        values = [*row.values(), sum(row.values()) / len(row)]
        out.append(f"{name:10s}" + "".join(f"{value:10.4f}" for value in values))
    return out


def lead_line(
    name: str, words: str, more: Figure, own_name: str, unit: str = "bits per byte"
) -> str:
    """Return how much an arm needs more than `own_name`, with the interval."""
    span = f"{more.value:+.4f} [{more.low:+.4f}, {more.high:+.4f}]"
    return f"{name}, {words}: {span} {unit} more than {own_name}"
