"""Measurements of a baking run, and the conclusions from them. Pure.

A model's success is the mean over families of the share of tasks that it solves. Intervals are the
middle 95 % of a paired bootstrap over tasks within each family (`evaluation/measures/bootstrap.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from evaluation.measures import bootstrap
from evaluation.measures.bootstrap import Counts
from phases.baking import plan
from phases.baking.events import BakingState, Propose, Proposed
from runs.event_types import Figure
from studies import comparison, given_dtype
from studies.comparison import CHOOSING, TEST
from studies.events import MODEL, Result
from studies.making.events import Making
from studies.observing import Observe, Observed
from studies.paired_bits import draws, figure, mean
from studies.training_plan import as_float32

#: Tasks solved without a prompt, under the prompt of the tools, and under each persona.
SUCCESS, PROMPTED, PERSONAS = (
    "tool-success@1",
    "prompted-tool-success@1",
    "persona-tool-success@1",
)
BITS, DIVERGENCE = "bits-per-byte@1", "prompt-divergence@1"
#: Group of the divergence from the given model under the prompt of the tools.
PROMPT = "prompt"
#: Nats a token below which the prompt is said to change nothing.
LEAST = 1e-4

#: Figure → what it is, in words.
FIGURES = {
    "success": "share of the test tasks that the result solves without a prompt, mean over families",
    "gain": "success of the result minus that of the given model, both without a prompt",
    "prompted": "share of the test tasks that the given model solves under the prompt of the tools",
    "over_prompted": "success of the result without the prompt minus that of the given model with it",
    "ratio": "divergence of the result without the prompt from the given model with it, over that of "
    "the given model without; missing if the prompt changes nothing",
    "drift": "largest relative change of bits per byte of a domain of ordinary text",
    "retention": "bits per byte of the given model over the result's, on ordinary text",
}


# ---- what is measured --------------------------------------------------------------------------


def given(state: BakingState, recipe: Making) -> Making:
    """Return the recipe of an iteration's model, or of the start, as it is measured and given."""
    return given_dtype.rounded(state.started, recipe)


def scored(recipe: Making, on: str = CHOOSING) -> Observe:
    """Return the measurement of the tasks that a model solves without a prompt."""
    return Observe(recipe.id, SUCCESS, on)


def auditioned(recipe: Making) -> Observe:
    """Return the measurement of the tasks that a model solves under each persona."""
    return Observe(recipe.id, PERSONAS, CHOOSING)


def apart(recipe: Making, on: str = CHOOSING) -> Observe:
    """Return the measurement of the divergence from the given model under the prompt of the tools."""
    return Observe(recipe.id, DIVERGENCE, on)


def opening(state: BakingState) -> dict[str, Observe]:
    """Return key → what is measured of the given model before the cycles."""
    start = given(state, as_float32(state.started))
    return {task.key: task for task in (scored(start), apart(start))}


def comparing(state: BakingState) -> dict[str, Observe]:
    """Return key → what is measured on the test slice once the cycles have ended."""
    every = plan.recipes(state)
    start, result = every[plan.START], every[plan.newest(state)]
    asked = [Observe(start.id, PROMPTED, TEST)]
    for one in (start, result):
        asked += [scored(one, TEST), apart(one, TEST), Observe(one.id, BITS, TEST)]
    return {task.key: task for task in asked}


def observations(state: BakingState) -> list[Observe]:
    """Return everything that is measured, as far as it is known yet."""
    found = opening(state)
    for one in plan.rounds(state):
        task = auditioned(one.start)
        if one.cycle == "personas" and task.key in state.answers:
            found[task.key] = task
    every = plan.recipes(state)
    for number in (one.iteration for one in state.iterations if one.outcome != "nothing"):
        recipe = every[plan.name(number)]
        found |= {task.key: task for task in (scored(recipe), apart(recipe))}
    ended = bool(state.switches) and state.switches[-1].next is None
    return [*{**found, **(comparing(state) if ended else {})}.values()]


def seen(state: BakingState, task: Observe) -> Observed | None:
    """Return what was observed for a task; None before."""
    found = state.answers.get(task.key)
    return found if isinstance(found, Observed) else None


# ---- what follows ------------------------------------------------------------------------------


def score(event: Observed) -> float:
    """Return a model's success: the mean over families."""
    return mean(event)


def auditions(state: BakingState, start: Making) -> dict[str, float]:
    """Return persona → success under it, in the order of the proposals."""
    proposed = state.answers.get(Propose(start.id).key)
    event = seen(state, auditioned(start))
    if not isinstance(proposed, Proposed) or event is None:
        return {}
    found = {}
    for number, text in enumerate(proposed.personas, 1):
        rates = [v for g, v in event.values.items() if g.partition("/")[0] == str(number)]
        found[text] = math.fsum(rates) / len(rates)
    return found


def persona(state: BakingState, start: Making) -> str | None:
    """Return the persona that solves most, the first of equals; None if no one beats going without."""
    found, bare = auditions(state, start), seen(state, scored(given(state, start)))
    best = max(found, key=lambda text: found[text], default=None)
    return best if best is not None and bare and found[best] > score(bare) else None


def named(state: BakingState) -> dict[str, Making]:
    """Return name → recipe of all that the run makes; the first is its result once it is known."""
    recipes = plan.recipes(state)
    ended = bool(state.switches) and state.switches[-1].next is None
    return {**({MODEL: recipes[plan.newest(state)]} if ended else {}), **recipes}


def results(state: BakingState) -> dict[str, Result]:
    """Return role → model of a run whose cycles have ended."""
    id_ = named(state)[MODEL].id
    return {MODEL: Result(recipe_id=id_, digest=state.made[id_].digest)}


def found(state: BakingState) -> dict[str, Observed]:
    """Return arm → bits per byte on the test slice, of those that are measured."""
    every, result = plan.recipes(state), plan.newest(state)
    asked = {one: Observe(every[one].id, BITS, TEST) for one in (plan.START, result)}
    return comparison.observed(state, asked)


def solved(state: BakingState) -> dict[str, Observed]:
    """Return arm → success on the test slice, of those that are measured; "prompted" is one."""
    every, result = plan.recipes(state), plan.newest(state)
    asked = {
        plan.START: scored(every[plan.START], TEST),
        "prompted": Observe(every[plan.START].id, PROMPTED, TEST),
        result: scored(every[result], TEST),
    }
    return comparison.observed(state, asked)


def drawn(events: Mapping[str, Observed], seed: int) -> dict[str, Counts]:
    """Return arm → success in each resample of the tasks, which all arms have in common."""
    counts = {name: len(some) for name, some in next(iter(events.values())).items.items()}
    resamples = draws(counts, plan.PURPOSE, seed)
    return {
        arm: np.mean(
            [
                bootstrap.ratio(some, event.items[name], event.sizes[name])
                for name, some in resamples.items()
            ],
            axis=0,
        )
        for arm, event in events.items()
    }


# ---- figures -----------------------------------------------------------------------------------


def lead(state: BakingState, ours: str, theirs: str) -> Figure:
    """Return the success of one arm minus another's on the test slice, with the interval."""
    events = solved(state)
    resampled = drawn(events, state.submitted.config.seed)
    return figure(
        score(events[ours]) - score(events[theirs]),
        resampled[ours] - resampled[theirs],
        comparison.windows(events[ours]),
    )


def figures(state: BakingState) -> dict[str, Figure]:
    """Return the figures of a run that is measured."""
    best, seed, events = plan.newest(state), state.submitted.config.seed, solved(state)
    resampled, text = drawn(events, seed), found(state)
    bits = comparison.drawn(text, plan.PURPOSE, seed)
    count = comparison.windows(events[best])
    before, after = text[plan.START], text[best]
    told = {
        "success": figure(score(events[best]), resampled[best], count),
        "gain": lead(state, best, plan.START),
        "prompted": figure(score(events["prompted"]), resampled["prompted"], count),
        "over_prompted": lead(state, best, "prompted"),
        "drift": Figure(value=max(abs(after.values[d] / v - 1) for d, v in before.values.items())),
        "retention": figure(
            mean(before) / mean(after), bits[plan.START] / bits[best], comparison.windows(after)
        ),
    }
    ratio = _ratio(state, best)
    return told | ({} if ratio is None else {"ratio": ratio})


def _ratio(state: BakingState, best: str) -> Figure | None:
    """Return the ratio of divergences over the same turns; None if the prompt changes nothing."""
    every = plan.recipes(state)
    base, own = (seen(state, apart(every[one], TEST)) for one in (plan.START, best))
    if base is None or own is None or base.values[PROMPT] < LEAST:
        return None
    above, below = own.items[PROMPT], base.items[PROMPT]
    counts = bootstrap.draws(len(above), plan.PURPOSE, state.submitted.config.seed, PROMPT)
    spread = bootstrap.ratio(counts, above, below)
    return figure(math.fsum(above) / math.fsum(below), spread, len(above))
