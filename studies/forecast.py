"""Forecast of a study's run: its start and its first steps are done here, and nothing is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evaluation.training_text.kept_text import ITEMS
from runs.kinds.forecast import Amount, Forecast
from runs.system.durations import duration
from runs.system.stopwatch import timed
from studies import given_dtype
from studies.declaration import Declaration
from studies.folders import write_companions
from studies.work import Context
from weights.folders import stand_ins
from weights.folders.checkpoint import SHARD_BYTES, write_weights
from weights.model import Model
from weights.storage.weight_cache import Artifacts
from weights.threads import set_threads
from weights.training.canary import STEPS

#: Folder of the model that the stand-ins are made from.
FIRST = "first"


def forecast(
    study: Declaration, work: type[Context], submitted: Any, cache: Artifacts, folder: Path
) -> Forecast:
    """Return what a run costs here. Raises the errors of a start.

    Steps are those of the training that takes the longest; measurements are not timed.
    """
    set_threads()
    state = study.state()
    state.take(submitted)
    context = work(state, cache)
    opening = timed(lambda: state.take(context.started()))
    first = context.initial(state.started)
    stepping = context.step_seconds()
    extent, numbers = study.extent(study.run(state)), study.parameters(state)
    steps, passes = extent.steps, extent.measurements
    counted = extent.counted or f"there are {steps:,} steps in all, none slower"
    size, words = given_dtype.stored(state.started, extent.models, extent.rounded, numbers)
    stand_in = _stand_in(context, first, folder / FIRST)
    text = sum(file.stat().st_size for file in context.text.folder.iterdir())
    return Forecast(
        Amount(
            opening + steps * stepping / STEPS,
            f"timed here: {STEPS} steps of {study.slowest_words} took {duration(stepping)}, and "
            f"{counted}; the start {duration(opening)}. {passes} measurements come on top",
        ),
        Amount(size + text, f"counted: {words}, and the text"),
        Amount(
            study.memory_of(submitted, state.started),
            "counted: weights, gradients and two moments of one training, and a teacher; activations "
            "come on top",
        ),
        {role: stand_ins.write(stand_in, folder / role, role) for role in study.result_roles},
        context.text.folder / ITEMS,
    )


def _stand_in(context: Context, first: Model, folder: Path) -> Path:
    """Write the model that the slowest training begins with; return its folder."""
    folder.mkdir(parents=True)
    write_weights(folder, first.weights, SHARD_BYTES)
    write_companions(context, folder)
    return folder
