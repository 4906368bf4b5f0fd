"""Forecast of a curriculum run: its start and its first steps are done here; nothing is recorded."""

from __future__ import annotations

from pathlib import Path

from evaluation.training_text.kept_text import ITEMS
from phases.curriculum import plan
from phases.curriculum.events import CurriculumState, Submitted
from phases.curriculum.tasks.execute import Context
from runs.kinds.forecast import Amount, Forecast
from runs.system.durations import duration
from runs.system.stopwatch import timed
from studies import given_dtype
from studies.events import MODEL
from weights.folders import stand_ins
from weights.storage.weight_cache import Artifacts
from weights.threads import set_threads
from weights.training.canary import STEPS

#: Bytes of a number of a training: weight, gradient and moments.
TRAINED = 16


def forecast(submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
    """Return what a run costs here. Raises the errors of a start.

    Measurements are not timed.
    """
    set_threads()
    state = CurriculumState()
    state.take(submitted)
    context = Context(state, cache)
    opening = timed(lambda: state.take(context.started()))
    _, stepping = context.canary(state.started, context.initial(state.started))
    config = submitted.config
    steps = len(config.arms) * plan.bounds(config, state.started.context)[-1]
    given, models = state.started.model.parameters, len(config.arms) * config.segments + 1
    kept, words = given_dtype.stored(state.started, models, len(config.arms), given)
    text = sum(file.stat().st_size for file in context.text.folder.iterdir())
    return Forecast(
        Amount(
            opening + steps * stepping / STEPS,
            f"timed here: {STEPS} steps took {duration(stepping)}, and there are {steps:,} in all; the "
            f"start {duration(opening)}. {models} measurements between segments come on top",
        ),
        Amount(
            kept + text,
            f"counted: {words}, and the items",
        ),
        Amount(
            given * TRAINED,
            "counted: weights, gradients and two moments of one training; activations come on top",
        ),
        {MODEL: stand_ins.write(context.donor, folder / MODEL, MODEL)},
        context.text.folder / ITEMS,
    )
