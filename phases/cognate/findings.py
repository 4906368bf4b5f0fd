"""Measurements of a cognate run, and the conclusions from them. Pure."""

from __future__ import annotations

import math

import numpy as np

from evaluation.measures import bootstrap
from phases.cognate import plan
from phases.cognate.events import CognateState, Lead, Result, Started, Submitted
from runs.event_types import Figure
from studies import paired_bits
from studies.observing import Observe, Observed
from studies.training_defaults import READINGS
from weights.recipes import Train

#: Measures: quality by domain; the loss along the line from base to specialist; task vectors.
QUALITY, LINE, GEOMETRY = "bits-per-byte@1", "loss-along-line@1", "task-vectors@1"
#: The slice that is measured on.
SLICE = "selection"
#: Places on the line from base (0) to specialist (1).
PLACES = (0.0, 0.25, 0.5, 0.75, 1.0)
#: A rise of more than this (nats a token) above the straight line between the ends is a barrier.
BARRIER = 0.01


def readings(submitted: Submitted, started: Started) -> list[str]:
    """Return a note for each text that a training reads more than `READINGS` times over."""
    base = plan.base(submitted, started)
    trainings = plan.specialists(submitted, started)
    if isinstance(base, Train):
        trainings = {plan.BASE: base, **trainings}
    notes = []
    for role, recipe in trainings.items():
        tokens, total = recipe.steps * recipe.batch * recipe.context, sum(recipe.data.values())
        for domain, share in recipe.data.items():
            times = tokens * share / total / started.tokens[domain]
            if times > READINGS:
                notes.append(
                    f"the {role} training reads the text of {domain} {times:.0f} times over: give it "
                    "more text, or fewer tokens to train on."
                )
    return notes


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


def leads(state: CognateState) -> dict[str, Lead]:
    """Return specialist → its lead on its own domain over the best of the other models."""
    figures, seen = quality(state), found(state, QUALITY)
    seed, told = state.submitted.config.seed, {}
    for role in state.submitted.config.domains:
        rival = min((other for other in figures if other != role), key=lambda r: figures[r][role])
        sizes = seen[role].sizes[role]
        theirs, mine = seen[rival].items[role], seen[role].items[role]
        lead = bootstrap.rates(theirs, mine, sizes, "cognate lead", seed, role)
        difference, low, high = (x / math.log(2) for x in (lead.difference, lead.low, lead.high))
        told[role] = Lead(rival=rival, difference=difference, low=low, high=high)
    return told


def gain(state: CognateState) -> Figure:
    """Return how many bits per byte fewer specialists need on their own domains than the base.

    It is a share, the mean over domains. The interval is that of a paired bootstrap over windows within
    each domain.
    """
    seen, seed = found(state, QUALITY), state.submitted.config.seed
    points, resampled, windows = [], [], 0
    for role in state.submitted.config.domains:
        ours, base = seen[role], seen[plan.BASE]
        count = len(ours.sizes[role])
        counts = bootstrap.draws(count, "cognate gain", seed, role)
        points.append(1 - ours.values[role] / base.values[role])
        resampled.append(1 - bootstrap.ratio(counts, ours.items[role], base.items[role]))
        windows += count
    return paired_bits.figure(math.fsum(points) / len(points), np.mean(resampled, axis=0), windows)


def results(state: CognateState) -> dict[str, Result]:
    """Return role → model of a run whose models are made and measured."""
    figures, lead = quality(state), leads(state)
    return {
        role: Result(
            recipe_id=recipe.id,
            digest=state.made[recipe.id].digest,
            bits_per_byte=figures[role],
            lead=lead.get(role),
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
