"""Forecast of an experts run: its start, its first steps and some mixtures are done here.

Nothing is recorded.
"""

from __future__ import annotations

import time
from pathlib import Path

from evaluation.training_text.kept_text import ITEMS
from phases.experts import recipes
from phases.experts.events import Submitted
from phases.experts.recipes import MEASURE, SEARCH
from phases.experts.scoring import joined, sums
from phases.experts.search.generations import spaces
from phases.experts.work import Context
from runs.kinds.forecast import Amount, Forecast
from runs.system.durations import duration
from runs.system.stopwatch import timed
from studies import given_dtype
from studies.declaration import Declaration
from studies.events import MODEL
from studies.folders import write_companions
from weights.folders import stand_ins
from weights.folders.checkpoint import SHARD_BYTES, write_weights
from weights.storage.weight_cache import Artifacts
from weights.threads import set_threads
from weights.training.canary import STEPS

#: Bytes of a number of a part in float32, and of a model's factors in float64.
STORED, FACTORED = 4, 16


def forecast(study: Declaration, submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
    """Return what a run costs here. Raises the errors of a start.

    Steps and the measurement of the given model as a mixture are timed; dispatch and the comparison are
    not.
    """
    set_threads()
    state, config = study.state(), submitted.config
    state.take(submitted)
    context = Context(state, cache)
    opening = timed(lambda: state.take(context.started()))
    started = state.started
    stepping = context.step_seconds()
    domains = recipes.trainable(submitted, started)[: config.experts]
    domains += config.families[: config.experts]
    trainings = [recipes.expert(submitted, started, domain) for domain in domains]
    if started.adapters:
        trainings += [recipes.lora(submitted, started, domain) for domain in domains]
    experts, trained, steps = (
        len(domains),
        len(trainings),
        sum(training.steps for training in trainings),
    )
    trial = min(STEPS, trainings[0].steps)
    arms = len(spaces(len(started.merges), ("",) * experts))
    scoring = _scoring(context) if config.evaluations else 0.0
    stand_in = folder / recipes.GIVEN
    stand_in.mkdir(parents=True)
    write_weights(stand_in, context.model(context.record.recipe_id).weights, SHARD_BYTES)
    write_companions(context, stand_in)
    text = sum(file.stat().st_size for file in context.text.folder.iterdir())
    parameters, parts = started.model.parameters, experts + len(started.merges)
    mixtures = 1 + experts + config.finalists * arms
    whole = 1 + trained + (0 if started.dtype else mixtures)
    stored_bytes, words = given_dtype.stored(started, whole, mixtures + 1, parameters)
    return Forecast(
        Amount(
            opening + steps * stepping / trial + arms * config.evaluations * scoring,
            f"timed here: the start {duration(opening)}, {trial} steps of an "
            f"expert {duration(stepping)}, and there are {steps:,} of all kinds; a mixture "
            f"{duration(scoring)}, and there are {arms * config.evaluations:,} at most. Dispatch and "
            "the comparison come on top",
        ),
        Amount(
            stored_bytes + parameters * FACTORED + text,
            f"counted: {words} at most, the decomposition, and the text",
        ),
        Amount(
            parameters * (2 * FACTORED + STORED * parts),
            "counted: a model, its decomposition and what each part adds; activations come on top",
        ),
        {MODEL: stand_ins.write(stand_in, folder / MODEL, MODEL)},
        context.text.folder / ITEMS,
    )


def _scoring(context: Context) -> float:
    """Return the seconds that the windows of the search take."""
    model = context.loaded(context.model(context.record.recipe_id), MEASURE)
    every = joined([*context.measured(SEARCH).values()])
    began = time.monotonic()
    sums(model, every)
    return time.monotonic() - began
