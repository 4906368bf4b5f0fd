"""Measurements of a run: the tasks and their answers, as its history has them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from events import Envelope, Event
from runs import kinds
from runs.history.places import appends
from runs.history.repository import empty
from runs.kinds.decide import open_tasks

#: Numbers below it count as zero.
TINY = 1e-12


def measurements(rows: Sequence[Envelope]) -> Iterator[tuple[Any, Event]]:
    """Yield (task, recorded answer) of all that a run has measured, in the order of its history.

    The rows are those of a history that the audit finds nothing wrong with.
    """
    kind, state = kinds.kind_of(rows[-1].stream), empty(rows[-1].stream)
    assert kind is not None
    for group in appends(rows):
        event = state.registry.load(group[0])
        if isinstance(event, kind.remeasured):
            key = group[0].key.partition("/")[2]
            yield next(task for task in open_tasks(state) if task.key == key), event
        state.absorb(group)


def about(task: Any) -> str | None:
    """Return the recipe id of the model that a task measures; None if it is about several."""
    recipe = getattr(task, "recipe", None)
    return recipe.id if recipe is not None else getattr(task, "recipe_id", None)


def words(task: Any) -> str:
    """Return a task's key with short ids."""
    return re.sub("[0-9a-f]{64}", lambda digest: digest[0][:12], task.key)


def difference(recorded: Any, again: Any) -> float | None:
    """Return the largest |a − b| / max(|a|, |b|) of two data's numbers.

    Return None if the data differ in anything but numbers.
    """
    if isinstance(recorded, bool) or isinstance(again, bool):
        return 0.0 if recorded is again else None
    if isinstance(recorded, int | float) and isinstance(again, int | float):
        return abs(recorded - again) / max(abs(recorded), abs(again), TINY)
    if isinstance(recorded, Mapping) and isinstance(again, Mapping):
        if recorded.keys() != again.keys():
            return None
        pairs = [(recorded[key], again[key]) for key in recorded]
    elif isinstance(recorded, list) and isinstance(again, list):
        if len(recorded) != len(again):
            return None
        pairs = list(zip(recorded, again, strict=True))
    else:
        return 0.0 if recorded == again else None
    largest = 0.0
    for recorded_value, other in pairs:
        if (gap := difference(recorded_value, other)) is None:
            return None
        largest = max(largest, gap)
    return largest
