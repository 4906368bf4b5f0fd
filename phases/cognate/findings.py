"""Measurements of a cognate run, and the conclusions from them. Pure."""

from __future__ import annotations

from evaluation.observing import Observe, Observed
from phases.cognate import plan
from phases.cognate.events import CognateState, Result

#: Measures: quality by domain; the loss along the line from base to specialist; task vectors.
QUALITY, LINE, GEOMETRY = "bits-per-byte@1", "loss-along-line@1", "task-vectors@1"
#: The slice that is measured on.
SLICE = "selection"
#: Places on the line from base (0) to specialist (1).
PLACES = (0.0, 0.25, 0.5, 0.75, 1.0)
#: A rise of more than this (nats a token) above the straight line between the ends is a barrier.
BARRIER = 0.01


def observations(state: CognateState) -> list[Observe]:
    """Return everything that is measured once all models are made."""
    models = plan.models(state)
    quality = [Observe(recipe.id, QUALITY, SLICE) for recipe in models.values()]
    base = models.pop(plan.BASE)
    lines = [Observe(recipe.id, LINE, SLICE) for recipe in models.values()]
    return [*quality, *lines, Observe(base.id, GEOMETRY, "none")]


def found(state: CognateState, measure: str) -> dict[str, Observed]:
    """Return role → what the measure found, for the models that were measured."""
    result = {}
    for role, recipe in plan.models(state).items():
        for on in (SLICE, "none"):
            event = state.answers.get(Observe(recipe.id, measure, on).key)
            if isinstance(event, Observed):
                result[role] = event
    return result


def quality(state: CognateState) -> dict[str, dict[str, float]]:
    """Return role → domain → bits per byte."""
    return {role: dict(event.values) for role, event in found(state, QUALITY).items()}


def results(state: CognateState) -> dict[str, Result]:
    """Return role → model of a run whose models are made and measured."""
    figures = quality(state)
    return {
        role: Result(
            recipe_id=recipe.id,
            digest=state.made[recipe.id].digest,
            bits_per_byte=figures[role],
        )
        for role, recipe in plan.models(state).items()
    }


def line(state: CognateState) -> dict[str, list[float]]:
    """Return specialist → loss in nats a token at each of `PLACES`."""
    return {
        role: [event.values[str(place)] for place in PLACES]
        for role, event in found(state, LINE).items()
    }


def barrier(losses: list[float]) -> float:
    """Return the highest rise above the straight line between the ends; at most 0 if none."""
    inner = zip(PLACES[1:-1], losses[1:-1], strict=True)
    return max(loss - (losses[0] * (1 - t) + losses[-1] * t) for t, loss in inner)


def no_specialist(state: CognateState) -> str:
    """Return which specialist is not the best on its own domain; empty if each is."""
    models = quality(state)
    for role in state.submitted.config.domains:
        best = min(models, key=lambda other: models[other][role])
        if best != role:
            return (
                f"the {role} specialist has {models[role][role]:.4f} bits per byte on {role}, {best} "
                f"has {models[best][role]:.4f}: it is no specialist. Try another seed, or a larger "
                "preset."
            )
    return ""
