"""Forecast of a baking run: its start, tasks and first steps are tried here; nothing is recorded."""

from __future__ import annotations

from pathlib import Path

from evaluation.training_text.kept_text import ITEMS
from phases.baking import plan
from phases.baking.events import BakingState, Submitted
from phases.baking.tasks.execute import Context
from runs.kinds.forecast import Amount, Forecast
from runs.system.durations import duration
from runs.system.stopwatch import timed
from studies import given_dtype, training_plan
from studies.events import MODEL
from weights.folders import stand_ins
from weights.storage.weight_cache import Artifacts
from weights.threads import set_threads
from weights.training.canary import STEPS


def forecast(submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
    """Return what a run costs here at most. Raises the errors of a start.

    The given model's work on the held-out tasks is timed, and steps on ordinary text.
    """
    set_threads()
    state = BakingState()
    state.take(submitted)
    context = Context(state, cache)
    opening = timed(lambda: state.take(context.started()))
    first, config = context.initial(state.started), submitted.config
    playing = timed(lambda: context.carry_out(plan.held(state.started)))
    _, stepping = context.canary(state.started, first)
    steps = config.iterations * config.steps
    parameters, made = state.started.model.parameters, config.iterations
    kept, words = given_dtype.stored(state.started, 2 * made + 1, made + 1, parameters)
    text = sum(file.stat().st_size for file in context.text.folder.iterdir())
    return Forecast(
        Amount(
            opening + playing + steps * stepping / STEPS,
            f"timed here: the start {duration(opening)}, the work on held-out tasks "
            f"{duration(playing)}, {STEPS} steps on ordinary text {duration(stepping)}, and there are "
            f"{steps:,} at most. The turns of each iteration and measurements come on top",
        ),
        Amount(
            kept + text,
            f"counted: at most {words}, and the text",
        ),
        Amount(
            training_plan.memory(parameters, state.started.trainable),
            "counted: weights, gradients and two moments of a training, and the teacher; activations "
            "come on top",
        ),
        {MODEL: stand_ins.write(context.donor, folder / MODEL, MODEL)},
        context.text.folder / ITEMS,
    )
