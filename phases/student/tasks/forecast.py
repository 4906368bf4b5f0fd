"""Forecast of a student run: its start and its first steps are done here, and nothing is recorded."""

from __future__ import annotations

from pathlib import Path

from evaluation.training_text.kept_text import ITEMS
from phases.student import findings, plan
from phases.student.events import StudentState, Submitted
from phases.student.tasks.execute import Context
from runs.kinds.forecast import Amount, Forecast
from runs.system.durations import duration
from runs.system.stopwatch import timed
from studies.events import MODEL
from studies.folders import write_companions
from weights.folders import stand_ins
from weights.folders.checkpoint import SHARD_BYTES, write_weights
from weights.storage.weight_cache import Artifacts
from weights.threads import set_threads
from weights.training.canary import STEPS

#: Bytes of a number of the models, which are stored in float32; of weight, gradient and moments.
STORED, TRAINED = 4, 16


def forecast(submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
    """Return what a run costs here. Raises the errors of a start.

    Steps are those of distillation, which takes the longest; measurements are not timed.
    """
    set_threads()
    state = StudentState()
    state.take(submitted)
    context = Context(state, cache)
    opening = timed(lambda: state.take(context.started()))
    first = context.initial(state.started)
    _, stepping = context.canary(state.started, first)
    steps = sum(recipe.upto for recipe in context.trainings.values())
    own, given = state.started.parameters, state.started.model.parameters
    models, passes = len(plan.recipes(state)), len(findings.observations(state))
    stand_in = folder / plan.FRESH
    stand_in.mkdir(parents=True)
    write_weights(stand_in, first.weights, SHARD_BYTES)
    write_companions(context, stand_in)
    text = sum(file.stat().st_size for file in context.text.folder.iterdir())
    return Forecast(
        Amount(
            opening + steps * stepping / STEPS,
            f"timed here: {STEPS} steps of distillation took {duration(stepping)}, and there are "
            f"{steps:,} steps in all, none slower; the start {duration(opening)}. {passes} "
            "measurements come on top",
        ),
        Amount(
            models * own * STORED + text,
            f"counted: {models} models of {own:,} numbers in float32, and the text",
        ),
        Amount(
            own * TRAINED + given * STORED,
            "counted: weights, gradients and two moments of one training, and the given model; "
            "activations come on top",
        ),
        {MODEL: stand_ins.write(stand_in, folder / MODEL, MODEL)},
        context.text.folder / ITEMS,
    )
