"""Forecasts of runs: the start and some steps are done here, and nothing is recorded.

A study gives `Costs`, what its run does and leaves; all else is the same for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.training_text.kept_text import ITEMS
from runs.kinds.forecast import Amount, Forecast
from runs.system.durations import duration
from runs.system.stopwatch import timed
from studies import given_dtype
from studies.folders import write_companions
from weights.folders import stand_ins
from weights.folders.checkpoint import SHARD_BYTES, write_weights
from weights.model import Model
from weights.storage.weight_cache import Artifacts
from weights.threads import set_threads
from weights.training.canary import STEPS

#: Folder of the model that the stand-ins are made from.
FIRST = "first"


class Part(NamedTuple):
    """A part of a run's work."""

    #: Of all of it, by what was timed here.
    seconds: float
    #: What was timed, and how much there is of it.
    how: str


@dataclass(frozen=True)
class Costs:
    """Costs of a run: the work beside its start, and the models that it leaves."""

    parts: Sequence[Part]
    #: Models in float32, those rounded to the dtype of the given one, and the numbers of each.
    models: int
    rounded: int
    numbers: int
    #: What is not timed.
    besides: str = ""
    #: Bytes on disk beside models and text, and what is said after the models.
    further: tuple[int, str] = (0, "")
    #: Bytes that tasks need at once; None: those of a training.
    memory: Amount | None = None
    #: Model of the shape of those that the run gives; None: what the slowest training begins with.
    first: Model | None = None


def begun(kind: Any, work: type[Any], submitted: Any, cache: Artifacts) -> tuple[Any, float]:
    """Return the context of a run whose start is done here, and the seconds that it took.

    `work` is the kind's class of contexts. Raises the errors of a start.
    """
    set_threads()
    state = kind.state()
    state.take(submitted)
    context = work(state, cache)
    return context, timed(lambda: state.take(context.started()))


def of_steps(study: Any, context: Any) -> Costs:
    """Return the costs of a run by its steps, timed as those of the slowest training."""
    extent, stepping = study.extent(study.run(context.state)), context.step_seconds()
    counted = extent.counted or f"there are {extent.steps:,} steps in all, none slower"
    took = f"{STEPS} steps of {study.slowest_words} took {duration(stepping)}"
    return Costs(
        parts=(Part(extent.steps * stepping / STEPS, f"{took}, and {counted}"),),
        models=extent.models,
        rounded=extent.rounded,
        numbers=study.parameters(context.state),
        besides=f"{extent.measurements} measurements",
    )


def forecast(
    study: Any, work: type[Any], submitted: Any, cache: Artifacts, folder: Path
) -> Forecast:
    """Return what a run of a study costs here. Raises the errors of a start."""
    context, opening = begun(study, work, submitted, cache)
    started, costs = context.state.started, study.costs(context)
    timings = [*(part.how for part in costs.parts), f"the start {duration(opening)}"]
    besides = f". {costs.besides} come on top" if costs.besides else ""
    size, words = given_dtype.stored(started, costs.models, costs.rounded, costs.numbers)
    text = sum(file.stat().st_size for file in context.text.folder.iterdir())
    stand_in = folder / FIRST
    stand_in.mkdir(parents=True)
    write_weights(stand_in, (costs.first or context.initial(started)).weights, SHARD_BYTES)
    write_companions(context, stand_in)
    more, which = costs.further
    return Forecast(
        Amount(
            opening + math.fsum(part.seconds for part in costs.parts),
            f"timed here: {'; '.join(timings)}{besides}",
        ),
        Amount(size + more + text, f"counted: {words}{which}, and the text"),
        costs.memory
        or Amount(
            study.memory_of(submitted, started),
            "counted: weights, gradients and two moments of one training, and a teacher; activations "
            "come on top",
        ),
        {
            role: stand_ins.write(stand_in, folder / role, role)
            for role in study.roles(submitted.config)
        },
        context.text.folder / ITEMS,
    )
