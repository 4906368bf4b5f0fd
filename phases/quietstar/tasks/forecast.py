"""Forecast of a quietstar run: its start and its first steps are done here, and nothing is recorded."""

from __future__ import annotations

from pathlib import Path

from evaluation.training_text.kept_text import ITEMS
from phases.quietstar import findings, plan
from phases.quietstar.events import QuietstarState, Submitted
from phases.quietstar.tasks.execute import Context
from runs.kinds.forecast import Amount, Forecast
from runs.system.durations import duration
from runs.system.stopwatch import timed
from studies import given_dtype
from studies.events import MODEL
from studies.folders import write_companions
from weights.folders import stand_ins
from weights.folders.checkpoint import SHARD_BYTES, write_weights
from weights.storage.weight_cache import Artifacts
from weights.threads import set_threads
from weights.training.canary import STEPS

#: Bytes of a number of a teacher in float32; of weight, gradient and moments.
STORED, TRAINED = 4, 16
#: Models that are rounded if the given one has 16 bits: start, three arms, the one without thoughts.
ROUNDED = 5


def forecast(submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
    """Return what a run costs here. Raises the errors of a start.

    Steps are those with thoughts, which take the longest by far; measurements are not timed.
    """
    set_threads()
    state = QuietstarState()
    state.take(submitted)
    context = Context(state, cache)
    opening = timed(lambda: state.take(context.started()))
    first = context.initial(state.started)
    _, stepping = context.canary(state.started, first)
    steps = plan.trainings(state)[plan.THOUGHTS].upto
    numbers = state.started.model.parameters
    halved = ROUNDED if state.started.dtype else 0
    whole = len(plan.recipes(state)) - halved
    kept, words = given_dtype.stored(state.started, whole, halved, numbers)
    donor = folder / plan.START
    donor.mkdir(parents=True)
    write_weights(donor, first.weights, SHARD_BYTES)
    write_companions(context, donor)
    text = sum(file.stat().st_size for file in context.text.folder.iterdir())
    passes = findings.observations(state)
    return Forecast(
        Amount(
            opening + 2 * steps * stepping / STEPS,
            f"timed here: {STEPS} steps with thoughts took {duration(stepping)}, and there are "
            f"{steps:,}; the other trainings count as much again, which is more than they take; the "
            f"start {duration(opening)}. {len(passes) + 2} measurements come on top",
        ),
        Amount(
            kept + text,
            f"counted: {words}, and the text",
        ),
        Amount(
            numbers * (TRAINED + STORED),
            "counted: weights, gradients and two moments of one training, and its teacher; "
            "activations, which thoughts multiply, come on top",
        ),
        {MODEL: stand_ins.write(donor, folder / MODEL, MODEL)},
        context.text.folder / ITEMS,
    )
