"""Forecast of a bitnet run: its start and its first steps are done here, and nothing is recorded."""

from __future__ import annotations

from pathlib import Path

from evaluation.training_text.kept_text import ITEMS
from phases.bitnet import findings, origins, plan
from phases.bitnet.events import BitnetState, Submitted
from phases.bitnet.tasks.execute import Context
from runs.kinds.forecast import Amount, Forecast
from runs.system.durations import duration
from runs.system.stopwatch import timed
from studies.folders import write_companions
from studies.observing import Observe
from studies.training_plan import as_float32
from weights import operations
from weights.folders import stand_ins
from weights.folders.checkpoint import SHARD_BYTES, write_weights
from weights.storage.weight_cache import Artifacts
from weights.threads import set_threads
from weights.training.canary import STEPS

#: Bytes of a number of the models, which are stored in float32; of weight, gradient and moments.
STORED, TRAINED = 4, 16


def forecast(submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
    """Return what a run costs here. Raises the errors of a start.

    Steps are those of ternary training, which takes the longest; measurements are not timed.
    """
    set_threads()
    state = BitnetState()
    state.take(submitted)
    context = Context(state, cache)
    opening = timed(lambda: state.take(context.started()))
    first = operations.apply(as_float32(state.started), {"of": context.given()})
    _, stepping = context.canary(state.started, first)
    steps = sum(recipe.upto for recipe in context.trainings.values())
    numbers = state.started.model.parameters
    models = len(plan.recipes(state))
    donor = folder / plan.START
    donor.mkdir(parents=True)
    write_weights(donor, first.weights, SHARD_BYTES)
    write_companions(context, donor)
    passes: list[Observe] = findings.observations(state)
    return Forecast(
        Amount(
            opening + steps * stepping / STEPS,
            f"timed here: {STEPS} steps of ternary training took {duration(stepping)}, and there are "
            f"{steps:,} steps in all, none slower; the start {duration(opening)}. {len(passes) + 1} "
            "measurements come on top",
        ),
        Amount(
            models * numbers * STORED + _bytes(context.text.folder),
            f"counted: {models} models of {numbers:,} numbers in float32, and the text",
        ),
        Amount(
            numbers * TRAINED,
            "counted: weights, gradients and two moments of one training; activations come on top",
        ),
        {role: stand_ins.write(donor, folder / role, role) for role in origins.ROLES},
        context.text.folder / ITEMS,
    )


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())
