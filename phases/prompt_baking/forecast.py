"""Forecast of a bake: its start, its replies and its first steps are done here; nothing is recorded."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from evaluation.data.packing import Ids
from evaluation.measures.perplexity import score_windows
from evaluation.training_text.kept_text import ITEMS
from evaluation.trajectories import divergence
from evaluation.trajectories.sampling import rows_of_pass
from phases.prompt_baking import prompts, replies
from phases.prompt_baking.events import BakeState, Submitted
from phases.prompt_baking.recipes import PARENT
from phases.prompt_baking.work import Context
from runs.kinds.forecast import Amount, Forecast
from runs.system.durations import duration
from runs.system.stopwatch import least, timed
from studies import given_dtype, training_plan
from studies.comparison import CHOOSING, TEST
from studies.events import MODEL
from studies.folders import write_companions
from weights.folders import stand_ins
from weights.folders.checkpoint import SHARD_BYTES, write_weights
from weights.storage.weight_cache import Artifacts
from weights.threads import set_threads
from weights.training.canary import STEPS
from weights.training.trajectories import Trajectory

#: Windows that the price of a window is measured on.
WINDOWS = 2


def forecast(submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
    """Return what a run costs here. Raises the errors of a start.

    A pass of replies of each stream, steps as long as any, and measurements of a few items are timed.
    """
    set_threads()
    state = BakeState()
    state.take(submitted)
    context = Context(state, cache)
    opening = timed(lambda: state.take(context.started()))
    first, config = context.initial(state.started), submitted.config
    stepping = context.step_seconds()
    steps, bakes = min(STEPS, config.steps), len(prompts.stages(config))
    every = config.steps * bakes
    sampling, written = _sampling(context)
    measuring = _measuring(context, written, bakes)
    parameters = state.started.model.parameters
    stand_in = folder / PARENT
    stand_in.mkdir(parents=True)
    write_weights(stand_in, first.weights, SHARD_BYTES)
    write_companions(context, stand_in)
    text = sum(file.stat().st_size for file in context.text.folder.iterdir())
    candidates = len(config.strengths) + len(config.stops)
    halved = state.started.dtype is not None
    whole = 1 + len(config.stops) if halved else len({1.0, *config.strengths}) + len(config.stops)
    starts = bakes if halved else 1
    stored_bytes, words = given_dtype.stored(
        state.started, starts + bakes * whole, bakes * candidates, parameters
    )
    return Forecast(
        Amount(
            opening + sampling + every * stepping / steps + measuring,
            f"timed here: the start {duration(opening)}, {steps} of {every:,} steps "
            f"{duration(stepping)}; by a part of each: the replies {duration(sampling)}, the "
            f"measurements {duration(measuring)}",
        ),
        Amount(
            stored_bytes + text,
            f"counted: {words}, and the text",
        ),
        Amount(
            training_plan.memory(parameters, state.started.trainable),
            "counted: weights, gradients and two moments of the training, and the given model; "
            "activations come on top",
        ),
        {MODEL: stand_ins.write(stand_in, folder / MODEL, MODEL)},
        context.text.folder / ITEMS,
    )


def _sampling(context: Context) -> tuple[float, list[Trajectory]]:
    """Return the seconds of all replies by those of a forward pass of each stream; and a pass.

    Replies of a pursuit are priced as those of the given model.
    """
    config, started, seconds = context.config, context.state.started, 0.0
    written: list[Trajectory] = []
    room = config.context_tokens + config.reply_tokens + started.prompt_tokens
    rows = rows_of_pass(context.parent, room, started.pass_tokens)
    few = config.model_copy(update={"trajectories": rows, "held_out": rows})
    for name, stream in context.sampling().items():
        if stream.like is None:
            began = time.monotonic()
            tools = context.parent, context.text, context.beginnings, few
            written = replies.written(*tools, {name: stream}, started.pass_tokens)[name]
            seconds += (time.monotonic() - began) * -(-prompts.count(config, stream) // rows)
    return seconds, written


def _measuring(context: Context, written: Sequence[Trajectory], bakes: int) -> float:
    """Return the seconds of all measurements, by the cost of a trajectory and of a window here.

    Each candidate is measured on the selection slice; the given model, the results and the last
    training on the test slice, with other prompts and beyond ordinary text.
    """
    config, started = context.config, context.state.started
    sets = sum(s.slice == "test" for s in prompts.streams(config, started.beyond).values())
    candidates = 1 + bakes * (len(config.strengths) + len(config.stops))
    finals = 2 + bakes
    model = context.parent
    windows = {on: _windows(context, on) for on in (CHOOSING, TEST)}
    few = windows[TEST][:WINDOWS]
    window = least(lambda: score_windows(model, few)) / len(few)
    reply = least(lambda: divergence.along(model, model, written)) / len(written)
    return candidates * (config.held_out * reply + len(windows[CHOOSING]) * window) + finals * (
        sets * config.held_out * reply + len(windows[TEST]) * window
    )


def _windows(context: Context, on: str) -> list[Ids]:
    """Return the windows of ordinary text that a slice's measurements read."""
    data = context.held_out(on)
    names = sorted(set(data) - set(context.config.contexts))
    return [ids for name in names for ids in data[name].windows]
