"""Measurements of a bake, and the conclusions from them. Pure.

All divergences are of the replies that the given model wrote under a prompt, in nats a token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from evaluation.given_model_runs import comparison
from evaluation.given_model_runs.comparison import CHOOSING, TEST
from evaluation.given_model_runs.events import MODEL, Result
from evaluation.measures import bootstrap
from evaluation.measures.bootstrap import Counts
from evaluation.measures.paired_bits import figure, mean
from evaluation.observing import Observe, Observed
from phases.bake import plan, prompts
from phases.bake.events import BakeState
from runs.event_types import Figure
from weights.making.events import Making

BITS, DIVERGENCE = "bits-per-byte@1", "prompt-divergence@1"
#: Groups of a divergence: under the run's prompts, and what the names of other prompts begin with.
PROMPT, OTHER = "prompt", "other-"
#: Nats a token below which prompts are said to change nothing.
LEAST = 1e-4
#: Largest ratio of divergences, and largest relative change of bits per byte, that are good.
LIMITS = {"ratio": 0.05, "drift": 0.005}

#: Figure → what it is, in words.
FIGURES = {
    "unprompted": "nats a token by which the given model without the prompt is off itself with it",
    "baked": "nats a token by which the result without the prompt is off the given model with it",
    "ratio": "the latter over the former: 0 is a perfect bake, 1 none",
    "strength": "share of the way from the given to the trained model",
    "drift": "largest relative change of bits per byte of a domain of ordinary text",
    "retention": "bits per byte of the given model over the result's, on ordinary text",
    "others": "nats a token by which the result is off the given model under other prompts",
    "unheard": "the same under the one prompt that was not rehearsed",
}


# ---- what is asked ---------------------------------------------------------------------------


def effect(state: BakeState) -> Observe:
    """Return the measurement of what the prompts change at all, on the selection slice."""
    return Observe(plan.parent(state.started).id, DIVERGENCE, CHOOSING)


def seen(state: BakeState, name: str, measure: str, on: str) -> Observed | None:
    """Return what was observed of a model of the run; None before."""
    recipe = plan.recipes(state).get(name)
    found = state.answers.get(Observe(recipe.id, measure, on).key) if recipe else None
    return found if isinstance(found, Observed) else None


def changes(state: BakeState) -> bool | None:
    """Return True if the prompts change what the given model says; None before it is measured."""
    found = state.answers.get(effect(state).key) if state.started else None
    return found.values[PROMPT] >= LEAST if isinstance(found, Observed) else None


def choosing(state: BakeState) -> dict[str, Observe]:
    """Return key → measurement on the selection slice, of the parent's text and of all strengths."""
    written = plan.sampled(state)
    asked = [Observe(plan.parent(state.started).id, BITS, CHOOSING)]
    for recipe in (plan.strengths(state, written) if written else {}).values():
        asked += [Observe(recipe.id, measure, CHOOSING) for measure in (DIVERGENCE, BITS)]
    return {task.key: task for task in asked}


def compared(state: BakeState) -> tuple[str, ...]:
    """Return the names of the models that are compared on the test slice, once they are known."""
    best = chosen(state)
    if best is None:
        return ()
    if best == plan.PARENT:
        return (plan.PARENT,)
    return (plan.PARENT, best) if best == plan.FULL else (plan.PARENT, best, plan.FULL)


def comparing(state: BakeState) -> dict[str, Observe]:
    """Return key → measurement on the test slice."""
    recipes = plan.recipes(state)
    asked = [
        Observe(recipes[name].id, measure, TEST)
        for name in compared(state)
        for measure in (DIVERGENCE, BITS)
    ]
    return {task.key: task for task in asked}


def observations(state: BakeState) -> list[Observe]:
    """Return everything that is measured."""
    every = {effect(state).key: effect(state), **comparing(state)}
    return list((every | choosing(state) if changes(state) else every).values())


# ---- what follows ----------------------------------------------------------------------------


def curve(state: BakeState) -> dict[float, tuple[float, float]]:
    """Return strength → (ratio, drift) on the selection slice, of those that are measured.

    The line begins at the given model: strength 0, ratio 1, no drift.
    """
    base = seen(state, plan.PARENT, DIVERGENCE, CHOOSING)
    text = seen(state, plan.PARENT, BITS, CHOOSING)
    if base is None or text is None or not changes(state):
        return {}
    found = {0.0: (1.0, 0.0)}
    for one in state.submitted.config.strengths:
        off = seen(state, plan.name(one), DIVERGENCE, CHOOSING)
        bits = seen(state, plan.name(one), BITS, CHOOSING)
        if off and bits:
            found[one] = off.values[PROMPT] / base.values[PROMPT], drift(text, bits)
    return found


def drift(text: Observed, bits: Observed) -> float:
    """Return the largest relative change of bits per byte of a domain, up or down."""
    return max(abs(bits.values[d] / value - 1) for d, value in text.values.items())


def chosen(state: BakeState) -> str | None:
    """Return the name of the result; None before all is measured that decides.

    Of the strengths whose drift is within its limit, the one that is nearest to the prompted model on
    the selection slice; of all if none is. The given model if the prompts change nothing.
    """
    if changes(state) is None:
        return None
    if not changes(state):
        return plan.PARENT
    found = curve(state)
    found.pop(0.0, None)
    if len(found) < len(state.submitted.config.strengths):
        return None
    good = [s for s, (_, off) in found.items() if off <= LIMITS["drift"]]
    return plan.name(min(good or found, key=lambda one: found[one][0]))


def found(state: BakeState) -> dict[str, Observed]:
    """Return name → bits per byte on the test slice, of the models that are compared."""
    every = {name: seen(state, name, BITS, TEST) for name in compared(state)}
    return {name: event for name, event in every.items() if event is not None}


def apart(state: BakeState) -> dict[str, Observed]:
    """Return name → divergences on the test slice, of the models that are compared."""
    every = {name: seen(state, name, DIVERGENCE, TEST) for name in compared(state)}
    return {name: event for name, event in every.items() if event is not None}


def named(state: BakeState) -> dict[str, Making]:
    """Return name → recipe of all that the run makes; the first is its result once it is known."""
    recipes, best = plan.recipes(state), chosen(state)
    return {**({MODEL: recipes[best]} if best else {}), **recipes}


def results(state: BakeState) -> dict[str, Result]:
    """Return role → model of a run whose result is chosen."""
    id_ = named(state)[MODEL].id
    return {MODEL: Result(recipe_id=id_, digest=state.made[id_].digest)}


def strength(state: BakeState, best: str) -> float:
    """Return the strength of a model by its name; 0 of the given model."""
    return next((s for s in state.submitted.config.strengths if plan.name(s) == best), 0.0)


# ---- figures ---------------------------------------------------------------------------------


def figures(state: BakeState) -> dict[str, Figure]:
    """Return the figures of a run that is measured; of prompts that change nothing, what that was."""
    best, every = chosen(state), apart(state)
    assert best is not None
    base = every[plan.PARENT]
    unprompted = _nats(state, base, [PROMPT])
    if best == plan.PARENT:
        return {"unprompted": unprompted}
    own, text = every[best], found(state)
    drawn = comparison.drawn(text, plan.PURPOSE, state.submitted.config.seed)
    kept = drawn[plan.PARENT] / drawn[best]
    told = {
        "unprompted": unprompted,
        "baked": _nats(state, own, [PROMPT]),
        "ratio": _ratio(state, base, own),
        "strength": Figure(value=strength(state, best)),
        "drift": Figure(value=drift(text[plan.PARENT], text[best])),
        "retention": figure(
            mean(text[plan.PARENT]) / mean(text[best]), kept, comparison.windows(text[best])
        ),
    }
    others = [group for group in own.items if group.startswith(OTHER)]
    if others:
        told["others"] = _nats(state, own, others)
    unheard = f"{OTHER}{len(prompts.measured(state.submitted.config))}"
    if state.submitted.config.generic and unheard in others:
        told["unheard"] = _nats(state, own, [unheard])
    return told


def met(told: Mapping[str, Figure]) -> dict[str, bool]:
    """Return figure → True if it is within its limit."""
    return {name: told[name].value <= limit for name, limit in LIMITS.items() if name in told}


def _drawn(state: BakeState, size: int, what: str) -> Counts:
    """Return how often each of `size` contexts is in each resample."""
    return bootstrap.draws(size, plan.PURPOSE, state.submitted.config.seed, what)


def _nats(state: BakeState, event: Observed, groups: list[str]) -> Figure:
    """Return the divergence over the contexts of some groups, resampled together."""
    items = [value for group in groups for value in event.items[group]]
    sizes = [size for group in groups for size in event.sizes[group]]
    what = PROMPT if groups == [PROMPT] else OTHER
    spread = bootstrap.ratio(_drawn(state, len(items), what), items, sizes)
    return figure(math.fsum(items) / sum(sizes), spread, len(items))


def _ratio(state: BakeState, base: Observed, own: Observed) -> Figure:
    """Return the ratio of two divergences over the same contexts, which are resampled for both."""
    above, below = own.items[PROMPT], base.items[PROMPT]
    spread = bootstrap.ratio(_drawn(state, len(above), PROMPT), above, below)
    return figure(math.fsum(above) / math.fsum(below), spread, len(above))


def leads(state: BakeState) -> dict[str, Figure]:
    """Return arm → the bits per byte that it needs more than the result, with the interval."""
    best, seed = chosen(state), state.submitted.config.seed
    return comparison.leads(found(state), best, plan.PURPOSE, seed) if best else {}
