"""Forecast of a cognate run: its start and its first steps are done here, and nothing is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evaluation.backends.local_backend import ResidentModel
from evaluation.training_text.kept_text import ITEMS
from phases.cognate import measure, recipes
from phases.cognate.events import Submitted
from phases.cognate.figures import LINE, PLACES, QUALITY
from phases.cognate.recipes import BASE
from phases.cognate.work import Context
from runs.kinds.forecast import Amount, Forecast
from runs.system.durations import duration
from runs.system.stopwatch import least, timed
from studies import given_dtype
from studies.folders import write_companions
from studies.observing import Observe
from studies.study import Study
from weights.folders import stand_ins
from weights.folders.checkpoint import SHARD_BYTES, write_weights
from weights.model import Model
from weights.storage.weight_cache import Artifacts
from weights.threads import set_threads
from weights.training.canary import STEPS
from weights.training.models import modules


def forecast(study: Study[Any], submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
    """Return what a run costs here. Raises the errors of a start."""
    set_threads()
    state = study.state()
    state.take(submitted)
    context = Context(state, cache)
    opening = timed(lambda: state.take(context.started()))
    initial = context.initial(state.started)
    stepping = context.step_seconds()
    scoring = _scoring(context, initial)
    steps = sum(recipe.upto for recipe in context.trainings.values())
    passes = sum(_passes(task) for task in study.observations(state))
    seconds = opening + steps * stepping / STEPS + passes * scoring
    models = _stand_ins(context, initial, folder)
    numbers = state.started.parameters
    text = sum(file.stat().st_size for file in context.text.folder.iterdir())
    stored_bytes, words = given_dtype.stored(state.started, len(models), len(models), numbers)
    config = state.submitted.config
    copies = 1 if config.sharded else config.processes
    shared = f" in each of {copies} processes" if copies > 1 else ""
    return Forecast(
        Amount(
            seconds,
            f"timed here: {STEPS} steps of training took {duration(stepping)}, and it has {steps:,}; a "
            f"pass over the held-out text {duration(scoring)}, and it has {passes}; the start "
            f"{duration(opening)}",
        ),
        Amount(
            stored_bytes + text, f"counted: {words}, and the text; snapshots on the way are removed"
        ),
        Amount(
            recipes.memory(state.started) * copies,
            f"counted: weights, gradients and two moments of one training{shared}; activations "
            "come on top",
        ),
        models,
        context.text.folder / ITEMS,
    )


def _passes(task: Observe) -> int:
    """Return how often a measurement reads the held-out text: of a line, not for its ends."""
    return {QUALITY: 1, LINE: len(PLACES) - 2}.get(task.measure, 0)


def _scoring(context: Context, initial: Model) -> float:
    """Return the seconds of a pass over the held-out text."""
    model = ResidentModel.from_module(modules.build(initial, context.device).eval())
    task = context.run.arms[BASE]
    return least(lambda: measure.quality(task, model, initial.weights, context.held_out))


def _stand_ins(context: Context, initial: Model, folder: Path) -> dict[str, Path]:
    """Write untrained models in the place of base and specialists; return role → folder."""
    base = folder / BASE
    base.mkdir(parents=True)
    write_weights(base, initial.weights, SHARD_BYTES)
    write_companions(context, base)
    roles = context.state.submitted.config.domains
    return {BASE: base, **{r: stand_ins.write(base, folder / r, r) for r in roles}}
