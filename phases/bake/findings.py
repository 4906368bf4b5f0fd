"""Measurements of a bake, and the conclusions from them. Pure.

All divergences are of the replies that the given model wrote under a prompt, in nats a token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from evaluation.measures import bootstrap
from evaluation.measures.bootstrap import Counts
from phases.bake import behaviour, plan, prompts, stages
from phases.bake.events import BakeState
from phases.bake.stages import BITS, DIVERGENCE, DRIFT, LEAST, PROMPT, drift
from runs.event_types import Figure
from studies import comparison
from studies.comparison import CHOOSING, TEST
from studies.events import MODEL, Result
from studies.making.events import Making
from studies.observing import Observe, Observed
from studies.paired_bits import figure, mean

#: Beginning of the groups under other prompts; group of contexts after ordinary text; beginning of
#: the groups in which the given model has all prompts but one.
OTHER, FAR, WITHOUT = "other-", "far", "without-"
#: Figures that must not be larger, and figures that must not be smaller, to be good.
LIMITS = {"ratio": 0.05, "drift": DRIFT, "shortfall": 0.02, "far_shortfall": 0.02}
FLOORS = {"kept": 0.95}

#: Figure → what it is, in words.
FIGURES = {
    "unprompted": "divergence without the prompt: nats a token of the given model from itself with it",
    "baked": "divergence left: nats a token of the result without prompt from the given model with it",
    "ratio": "ratio of divergences: the latter over the former; 0 is a perfect bake, 1 none",
    "strength": "strength: share of the way from the given to the trained model, or of its steps",
    "drift": "drift on ordinary text: largest relative change of bits per byte of a domain",
    "retention": "quality kept: bits per byte of the given model over the result's, ordinary text",
    "others": "divergence under other prompts: nats a token of the result from the given model",
    "unheard": "divergence under an unheard prompt: the same under one that was not rehearsed",
    "kept": "least kept of a prompt: least share of what one of several changes that the result has",
    "far_ratio": "ratio after ordinary text: ratio of divergences there, beyond the first tokens",
    **behaviour.FIGURES,
}


# ---- what is asked ---------------------------------------------------------------------------


def seen(state: BakeState, name: str, measure: str, on: str) -> Observed | None:
    """Return what was observed of a model of the run; None before."""
    recipe = stages.recipes(state).get(name)
    return stages.observed(state, recipe, measure, on) if recipe else None


def choosing(state: BakeState) -> dict[str, Observe]:
    """Return key → measurement on the selection slice, of the parent's text and all candidates."""
    asked = neutral(state)
    for one in stages.known(state):
        asked += choices(one)
    return {task.key: task for task in asked}


def neutral(state: BakeState) -> list[Observe]:
    """Return the measurement of the parent's bits per byte on the selection slice."""
    return [Observe(plan.parent(state.started).id, BITS, CHOOSING)]


def choices(one: stages.Known) -> list[Observe]:
    """Return the measurements that a stage's result is chosen by."""
    recipes = [candidate.recipe for candidate in one.candidates.values()]
    return [Observe(r.id, measure, CHOOSING) for r in recipes for measure in (DIVERGENCE, BITS)]


def compared(state: BakeState) -> tuple[str, ...]:
    """Return the names of the models that are compared on the test slice, once they are known.

    The given model, the result of every stage, and the model at the end of the last training.
    """
    if chosen(state) is None:
        return ()
    results = [one.best for one in stages.known(state) if one.best is not None]
    ends = list(stages.trainings(state))[-1:]
    return tuple(dict.fromkeys((plan.PARENT, *results, *ends)))


def comparing(state: BakeState) -> dict[str, Observe]:
    """Return key → measurement on the test slice."""
    recipes = stages.recipes(state)
    asked = [
        Observe(recipes[name].id, measure, TEST)
        for name in compared(state)
        for measure in (DIVERGENCE, BITS)
    ]
    if any(state.submitted.config.checks):
        asked += [Observe(recipes[name].id, behaviour.MEASURE, TEST) for name in shown(state)]
    return {task.key: task for task in asked}


def shown(state: BakeState) -> tuple[str, ...]:
    """Return the names of the models whose behaviour is measured: the given one and the results."""
    results = [one.best for one in stages.known(state) if one.best is not None]
    return (plan.PARENT, *results) if chosen(state) is not None else ()


def observations(state: BakeState) -> list[Observe]:
    """Return everything that is measured."""
    effect = stages.effect(state)
    every = {effect.key: effect, **comparing(state)}
    return list((every | choosing(state) if stages.changes(state) else every).values())


def expected(state: BakeState) -> list[Observe]:
    """Return what will be measured on the test slice, before the result is chosen; for a forecast.

    The ends of trainings are in the place of the results.
    """
    if chosen(state) is not None:
        return []
    measures = (DIVERGENCE, BITS, behaviour.MEASURE)[
        : 3 if any(state.submitted.config.checks) else 2
    ]
    models = (plan.parent(state.started), *stages.trainings(state).values())
    return [Observe(recipe.id, measure, TEST) for recipe in models for measure in measures]


# ---- what follows ----------------------------------------------------------------------------


def chosen(state: BakeState) -> str | None:
    """Return the name of the result; None before all is measured that decides.

    It is what the last stage has chosen; the given model if the prompts change nothing.
    """
    if stages.changes(state) is None:
        return None
    wanted, found = stages.active(state), stages.known(state)
    if not wanted:
        return plan.PARENT
    return found[-1].best if len(found) == len(wanted) else None


def found(state: BakeState) -> dict[str, Observed]:
    """Return name → bits per byte on the test slice, of the models that are compared."""
    every = {name: seen(state, name, BITS, TEST) for name in compared(state)}
    return {name: event for name, event in every.items() if event is not None}


def apart(state: BakeState) -> dict[str, Observed]:
    """Return name → divergences on the test slice, of the models that are compared."""
    every = {name: seen(state, name, DIVERGENCE, TEST) for name in compared(state)}
    return {name: event for name, event in every.items() if event is not None}


def behaved(state: BakeState) -> dict[str, Observed]:
    """Return name → behaviour on the test slice, of the models whose behaviour is measured."""
    every = {name: seen(state, name, behaviour.MEASURE, TEST) for name in shown(state)}
    return {name: event for name, event in every.items() if event is not None}


def named(state: BakeState) -> dict[str, Making]:
    """Return name → recipe of all that the run makes; the first is its result once it is known."""
    recipes, best = stages.recipes(state), chosen(state)
    return {**({MODEL: recipes[best]} if best else {}), **recipes}


def results(state: BakeState) -> dict[str, Result]:
    """Return role → the result, with the digest of its weights."""
    id_ = named(state)[MODEL].id
    return {MODEL: Result(recipe_id=id_, digest=state.made[id_].digest)}


# ---- figures ---------------------------------------------------------------------------------


def figures(state: BakeState) -> dict[str, Figure]:
    """Return the figures of a run that is measured; of prompts that change nothing, what that was."""
    best, every = chosen(state), apart(state)
    assert best is not None
    unprompted = _nats(state, every[plan.PARENT], [PROMPT])
    if best == plan.PARENT:
        return {"unprompted": unprompted}
    own, text = every[best], found(state)
    told = {
        "unprompted": unprompted,
        "baked": _nats(state, own, [PROMPT]),
        "ratio": ratios(state)[best],
        "strength": Figure(value=stages.known(state)[-1].candidates[best].share),
        "drift": Figure(value=drift(text[plan.PARENT], text[best])),
        "retention": _retention(state, text, best),
    }
    others = [group for group in own.items if group.startswith(OTHER)]
    if others:
        told["others"] = _nats(state, own, others)
    unheard = f"{OTHER}{len(prompts.measured(state.submitted.config))}"
    if state.submitted.config.generic and unheard in others:
        told["unheard"] = _nats(state, own, [unheard])
    if prompts_kept := kept(state):
        told["kept"] = min(prompts_kept.values(), key=lambda one: one.value)
    if best in (beyond := ratios(state, FAR)):
        told["far_ratio"] = beyond[best]
    return told | behaviour.figures(state.submitted.config, behaved(state), best)


def _retention(state: BakeState, text: Mapping[str, Observed], best: str) -> Figure:
    """Return bits per byte of the given model over those of the result."""
    drawn = comparison.drawn(text, plan.PURPOSE, state.submitted.config.seed)
    kept = drawn[plan.PARENT] / drawn[best]
    point = mean(text[plan.PARENT]) / mean(text[best])
    return figure(point, kept, comparison.windows(text[best]))


def met(told: Mapping[str, Figure]) -> dict[str, bool]:
    """Return figure → True if it is within its limit."""
    most = {name: told[name].value <= limit for name, limit in LIMITS.items() if name in told}
    return most | {
        name: told[name].value >= least for name, least in FLOORS.items() if name in told
    }


def ratios(state: BakeState, group: str = PROMPT) -> dict[str, Figure]:
    """Return name → ratio of divergences on the test slice, of all but the given model.

    Empty if the group was not measured, or the prompts change nothing in it.
    """
    every = apart(state)
    base = every.pop(plan.PARENT, None)
    if base is None or base.values.get(group, 0.0) < LEAST:
        return {}
    return {
        name: _ratio(state, base.items[group], own.items[group], group)
        for name, own in every.items()
    }


def kept(state: BakeState) -> dict[int, Figure]:
    """Return number of a prompt → share of what it changes beside the others that the result has.

    1 − KL(all prompts ‖ result) / KL(all prompts ‖ all but this one). A prompt that changes less than
    `LEAST` beside the others has no share.
    """
    every, best = apart(state), chosen(state)
    if best in (None, plan.PARENT) or not {plan.PARENT, best} <= set(every):
        return {}
    base, own, told = every[plan.PARENT], every[best], dict[int, Figure]()
    for number in range(1, len(state.submitted.config.prompts) + 1):
        group = f"{WITHOUT}{number}"
        if base.values.get(group, 0.0) >= LEAST:
            lost = _ratio(state, base.items[group], own.items[PROMPT], PROMPT)
            told[number] = _rest(lost)
    return told


def _rest(lost: Figure) -> Figure:
    """Return what a share leaves of 1, with the interval."""
    assert lost.low is not None
    assert lost.high is not None
    return Figure(value=1 - lost.value, low=1 - lost.high, high=1 - lost.low, n=lost.n)


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


def _ratio(
    state: BakeState, below: tuple[float, ...], above: tuple[float, ...], what: str
) -> Figure:
    """Return the ratio of two divergences over the same contexts, which are resampled for both."""
    spread = bootstrap.ratio(_drawn(state, len(above), what), above, below)
    return figure(math.fsum(above) / math.fsum(below), spread, len(above))


def leads(state: BakeState) -> dict[str, Figure]:
    """Return arm → the bits per byte that it needs more than the result, with the interval."""
    best, seed = chosen(state), state.submitted.config.seed
    return comparison.leads(found(state), best, plan.PURPOSE, seed) if best else {}
