"""Costs of a cognate run: steps, and passes over the held-out text."""

from __future__ import annotations

from evaluation.backends.local_backend import ResidentModel
from phases.cognate import measure, recipes
from phases.cognate.figures import LINE, PLACES, QUALITY
from phases.cognate.recipes import BASE
from phases.cognate.work import Context
from runs.kinds.forecast import Amount
from runs.system.durations import duration
from runs.system.stopwatch import least
from studies.forecast import Costs, Part
from studies.observing import Observe
from weights.model import Model
from weights.training.canary import STEPS
from weights.training.models import modules


def costs(context: Context) -> Costs:
    """Return what a run that has started does and leaves."""
    state, run = context.state, context.run
    stepping, scoring = context.step_seconds(), _scoring(context, context.initial(state.started))
    steps = sum(recipe.upto for recipe in context.trainings.values())
    passes = sum(_passes(task) for task in run.observations.values())
    config = state.submitted.config
    roles, copies = 1 + len(config.domains), 1 if config.sharded else config.processes
    shared = f" in each of {copies} processes" if copies > 1 else ""
    return Costs(
        parts=(
            Part(
                steps * stepping / STEPS,
                f"{STEPS} steps of training took {duration(stepping)}, and it has {steps:,}",
            ),
            Part(
                passes * scoring,
                f"a pass over the held-out text {duration(scoring)}, and it has {passes}",
            ),
        ),
        models=roles,
        rounded=roles,
        numbers=state.started.parameters,
        further=(0, " (snapshots on the way are removed)"),
        memory=Amount(
            recipes.memory(state.started) * copies,
            f"counted: weights, gradients and two moments of one training{shared}; activations "
            "come on top",
        ),
    )


def _passes(task: Observe) -> int:
    """Return how often a measurement reads the held-out text: of a line, not for its ends."""
    return {QUALITY: 1, LINE: len(PLACES) - 2}.get(task.measure, 0)


def _scoring(context: Context, initial: Model) -> float:
    """Return the seconds of a pass over the held-out text."""
    model = ResidentModel.from_module(modules.build(initial, context.device).eval())
    task = context.run.arms[BASE]
    return least(lambda: measure.quality(task, model, initial.weights, context.held_out))
