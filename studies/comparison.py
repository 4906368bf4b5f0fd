"""Comparison of a run's arms: bits per byte, leads and other figures, with intervals. Pure, no torch.

A model's bits per byte are the mean over domains, so that a long domain counts as much as a short one.
Intervals are the middle 95 % of a paired bootstrap: items or windows are resampled within each domain,
the same for all arms (`evaluation/measures/bootstrap.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from agent_forge.evaluation.measures import bootstrap
from agent_forge.evaluation.measures.bootstrap import Counts
from agent_forge.runs.event_types import Figure, Measurement
from agent_forge.runs.kinds.state import State
from agent_forge.runs.panels.shapes import Metric
from agent_forge.studies.events import Arm, Observe, Observed
from agent_forge.studies.training_panels import BITS

#: Measure of one model → what it measures, in words.
WORDS = {
    "bits-per-byte@1": "bits per byte",
    "int8-bits-per-byte@1": "bits per byte, int8 activations",
    "rolling-bits-per-byte@1": "bits per byte",
}


def mean(event: Observed) -> float:
    """Return a model's bits per byte, the mean over domains."""
    return math.fsum(event.values.values()) / len(event.values)


def draws(items: Mapping[str, int], *key: str | int) -> dict[str, Counts]:
    """Return domain → how often each item is drawn, [resamples, items]; `items`: domain → number."""
    return {domain: bootstrap.draws(items[domain], *key, domain) for domain in sorted(items)}


def rates(event: Observed, drawn: Mapping[str, Counts]) -> dict[str, Counts]:
    """Return domain → a model's bits per byte in each resample, [resamples]."""
    return {
        domain: bootstrap.ratio(counts, event.items[domain], event.sizes[domain]) / math.log(2)
        for domain, counts in drawn.items()
    }


def resampled(event: Observed, drawn: Mapping[str, Counts]) -> Counts:
    """Return a model's bits per byte in each resample, the mean over domains, [resamples]."""
    return np.mean([*rates(event, drawn).values()], axis=0)


def measurements(
    answers: Iterable[object], recipe_ids: Collection[str], *key: str | int
) -> list[Measurement]:
    """Return a list of `Measurement`s, bits per byte with intervals, of models with one of the ids.

    Each observation gives the mean over domains, if there are several, and every domain's. Measures
    that are of more than one model, such as losses along a line, are left out.
    """
    readings: list[Measurement] = []
    for event in answers:
        if isinstance(event, Observed) and event.recipe_id in recipe_ids and event.measure in WORDS:
            readings += _measured(event, *key)
    return readings


def _measured(event: Observed, *key: str | int) -> Iterator[Measurement]:
    """Yield `Measurement`s of bits per byte: the mean over domains, if several, and each domain's."""
    name, sizes = (WORDS[event.measure], {domain: len(items) for domain, items in event.items.items()})
    drawn = draws(sizes, *key, event.on)
    if len(sizes) > 1:
        whole = figure(mean(event), resampled(event, drawn), sum(sizes.values()))
        yield Measurement(name=name, slice=event.on, figure=whole)
    for domain, rate in rates(event, drawn).items():
        domain_figure = figure(event.values[domain], rate, sizes[domain])
        yield Measurement(name=name, domain=domain, slice=event.on, figure=domain_figure)


def figure(point: float, resamples: Counts, n: int) -> Figure:
    """Return the figure `point` of `n` items; its interval is the middle 95 % of `resamples`."""
    low, high = np.quantile(resamples, [0.025, 0.975])
    return Figure(value=point, low=float(low), high=float(high), n=n)


#: Slices: the one that candidates are chosen on, and the one that all arms are compared on.
CHOOSING, TEST = "selection", "test"

Seen = Mapping[str, Observed]
#: Arm → bits per byte in each resample of the windows.
Drawn = Mapping[str, Counts]


def observed(state: State, tasks: Mapping[str, Observe]) -> dict[str, Observed]:
    """Return arm → its `Observed` event, of the tasks that are done."""
    answers = {arm: state.answers.get(task.key) for arm, task in tasks.items()}
    return {arm: event for arm, event in answers.items() if isinstance(event, Observed)}


def windows(event: Observed) -> int:
    """Return the number of windows that a model was measured on."""
    return sum(map(len, event.items.values()))


def drawn(observations: Seen, purpose: str, seed: int) -> Drawn:
    """Return arm → array of bits per byte in each resample; all arms share the resamples of windows."""
    counts = {domain: len(items) for domain, items in next(iter(observations.values())).items.items()}
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
    """Return other arm → its figure minus that of `own_arm`, with interval; {} if that is unknown."""
    if own_arm not in observations:
        return {}
    arm_draws, own_mean = (scale.drawn(observations, purpose, seed), scale.mean(observations[own_arm]))
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
    """Return arm → its recipe id and bits per byte, as the event of the run's end has them."""
    return {
        arm: Arm(recipe_id=event.recipe_id, bits_per_byte=event.values)
        for arm, event in observations.items()
    }


def table(rows: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return a table as lines of text: a row for each arm, bits per byte by domain and their mean."""
    domains = list(next(iter(rows.values())))
    out = ["bits per byte (lower is better), test slice:"]
    out.append(f"{'':10s}" + "".join(f"{d:>10s}" for d in (*domains, "mean")))
    for name, row in rows.items():
        values = [*row.values(), sum(row.values()) / len(row)]
        out.append(f"{name:10s}" + "".join(f"{value:10.4f}" for value in values))
    return out


def lead_line(name: str, words: str, more: Figure, own_name: str, unit: str = "bits per byte") -> str:
    """Return a line of text: how much more the arm `name` needs than `own_name`, with interval."""
    span = f"{more.value:+.4f} [{more.low:+.4f}, {more.high:+.4f}]"
    return f"{name}, {words}: {span} {unit} more than {own_name}"
