"""Costs of a bake: replies, steps and measurements, each by a part of it that is done here."""

from __future__ import annotations

import time
from collections.abc import Sequence

from evaluation.data.packing import Ids
from evaluation.measures.perplexity import score_windows
from evaluation.trajectories import divergence
from evaluation.trajectories.sampling import rows_of_pass
from phases.prompt_baking import prompts, replies
from phases.prompt_baking.work import Context
from runs.system.durations import duration
from runs.system.stopwatch import least
from studies.comparison import CHOOSING, TEST
from studies.forecast import Costs, Part
from weights.training.canary import STEPS
from weights.training.trajectories import Trajectory

#: Windows that the price of a window is measured on.
WINDOWS = 2


def costs(context: Context) -> Costs:
    """Return what a run that has started does and leaves.

    A pass of replies of each stream, steps as long as any, and measurements of a few items are timed.
    """
    config, started, stepping = context.config, context.state.started, context.step_seconds()
    bakes = len(prompts.stages(config))
    trial, steps = min(STEPS, config.steps), config.steps * bakes
    sampling, written = _sampling(context)
    measuring = _measuring(context, written, bakes)
    strengths, stops = config.strengths, len(config.stops)
    halved = started.dtype is not None
    whole = stops + (1 if halved else len({1.0, *strengths}))
    return Costs(
        parts=(
            Part(steps * stepping / trial, f"{trial} of {steps:,} steps took {duration(stepping)}"),
            Part(sampling, f"the replies {duration(sampling)}, by a part of them"),
            Part(measuring, f"the measurements {duration(measuring)}, by a part of them"),
        ),
        models=(bakes if halved else 1) + bakes * whole,
        rounded=bakes * (len(strengths) + stops),
        numbers=started.model.parameters,
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
