"""Measurements of an experts run, and the conclusions from them. Pure.

A model is compared by the mean over the domains of its bits per byte over the given model's. The
neutral domain is left out of that mean: it is the drift.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from evaluation.measures import bootstrap
from phases.experts import answers, beside, plan, solving, stages
from phases.experts.events import ExpertsState, Route, Routed
from phases.experts.search.generations import ARMS, MIXTURES, MODELS, RANDOM
from phases.experts.search.objectives import mean, preferred
from phases.experts.solving import SOLVED
from phases.experts.stages import BITS, SEARCH
from runs.event_types import Figure
from studies import comparison, paired_bits
from studies.comparison import CHOOSING, TEST
from studies.events import MODEL, Result
from studies.making.events import Making
from studies.observing import Observe, Observed
from studies.paired_bits import figure

#: Figure → what it is, in words.
FIGURES = {
    "gain": "relative gain of the result in bits per byte, the mean over the domains of experts",
    "drift": "relative loss of the result on neutral text",
    "retention": "bits per byte of the given model over the result's, the mean over all domains",
    "experts": "experts that predict their own domain better than the given model",
    "evaluations": "mixtures that each arm of the search measured",
    "hypervolume": "volume that the front of the search dominates, beyond 1.05 of the given model",
    "hypervolume_random": "the same of random mixtures, as many",
    "hypervolume_models": "the same of mixtures of models alone, as many",
    "over_random": "gain of the best mixture over the best random one",
    "over_models": "gain of the best mixture over the best of models alone",
    **beside.FIGURES,
    **solving.FIGURES,
    "dispatch": "relative gain of dispatch by a classifier, nats a token after the beginning",
    "dispatched": "share of the windows whose own expert the classifier chose",
    "few_shot": "relative gain of dispatch by mixtures found from a few windows of each domain",
}


# ---- what is asked ---------------------------------------------------------------------------


def given_id(state: ExpertsState) -> str:
    """Return the recipe id of the given model as it is measured."""
    return plan.given(state.started).id


def assessing(state: ExpertsState) -> dict[str, Observe]:
    """Return the measurements of the given model: what experts are of, what mixtures stand beside."""
    found = {CHOOSING: Observe(given_id(state), BITS, CHOOSING)}
    if state.submitted.config.evaluations:
        found[SEARCH] = Observe(given_id(state), BITS, SEARCH)
    if state.submitted.config.families:
        found["solved"] = Observe(given_id(state), SOLVED, CHOOSING)
    return found


def alone(state: ExpertsState) -> dict[str, Observe]:
    """Return domain → measurement on the selection slice of the model with that expert."""
    every = stages.singles(state).items()
    return {domain: Observe(recipe.id, BITS, CHOOSING) for domain, recipe in every}


def choosing(state: ExpertsState) -> dict[str, Observe]:
    """Return name → measurement on the selection slice, of all that one is chosen of."""
    every = stages.candidates(state).items()
    return _each({name: Observe(recipe.id, BITS, CHOOSING) for name, recipe in every})


def compared(state: ExpertsState) -> dict[str, str]:
    """Return arm → recipe id of the models that are compared on the test slice.

    The given model, the best of every arm of the search, the mean of the models, each expert alone, and
    the adapters beside it.
    """
    found = {plan.GIVEN: given_id(state)}
    every = stages.candidates(state)
    for arm in ARMS:
        if name := best_of(state, arm):
            found[arm] = every[name].id
    found |= {name: one.id for name, one in stages.uniform(state).items()}
    found |= {f"{plan.ONLY}{domain}": one.id for domain, one in stages.singles(state).items()}
    return found | {f"{plan.LORA}{domain}": one.id for domain, one in stages.loras(state).items()}


def comparing(state: ExpertsState) -> dict[str, Observe]:
    """Return name → measurement on the test slice, of what is compared and of dispatch."""
    found = {arm: Observe(id_, BITS, TEST) for arm, id_ in compared(state).items()}
    every = stages.fitted(state).items()
    found |= {f"{plan.FITTED}{d}": Observe(recipe.id, BITS, TEST) for d, recipe in every}
    if state.submitted.config.families:
        own = compared(state).items()
        found |= {f"{arm}/solved": Observe(id_, SOLVED, TEST) for arm, id_ in own}
    return _each(found)


def _each(tasks: Mapping[str, Observe]) -> dict[str, Observe]:
    """Return the tasks without those that ask the same as an earlier one."""
    keys: set[str] = set()
    found = {}
    for name, task in tasks.items():
        if task.key not in keys:
            found[name] = task
        keys.add(task.key)
    return found


def observations(state: ExpertsState) -> list[Observe]:
    """Return everything that is measured, as far as it is known."""
    every = [*assessing(state).values(), *alone(state).values(), *choosing(state).values()]
    if chosen(state) is not None:
        every += comparing(state).values()
    return list({task.key: task for task in every}.values())


# ---- what follows ----------------------------------------------------------------------------


def _shares(state: ExpertsState) -> dict[str, dict[str, float]]:
    """Return name → domain → bits per byte over the given model's, of the candidates measured."""
    base = stages.given(state, CHOOSING)
    found = {}
    for name, recipe in stages.candidates(state).items():
        event = stages.seen(state, recipe.id, CHOOSING)
        if base is not None and event is not None:
            found[name] = stages.parted(event, base)
    return found


def _allowed(state: ExpertsState, shares: Mapping[str, float]) -> bool:
    """Return True if a model's loss on neutral text is within the limit."""
    config = state.submitted.config
    return shares.get(config.neutral, 1.0) <= 1 + config.drift


def _best(state: ExpertsState, shares: Mapping[str, Mapping[str, float]]) -> str | None:
    """Return the name of the best model within the limit of drift; None if there is none."""
    config = state.submitted.config
    told = {n: mean(config, one) for n, one in shares.items() if _allowed(state, one)}
    return min(told, key=lambda name: (told[name], name)) if told else None


def best_of(state: ExpertsState, arm: str) -> str | None:
    """Return the name of an arm's best mixture by the selection slice; None if it has none.

    It is within the limit of drift, if any of the arm's is.
    """
    own = {n: one for n, one in _shares(state).items() if stages.arm_of(n) == arm}
    return next(iter(preferred(state.submitted.config, own)), None)


def chosen(state: ExpertsState) -> str | None:
    """Return the name of the result; None before all candidates are measured.

    It is the best candidate on the selection slice if the interval of its gain there lies above zero,
    else the given model, which then is passed through.
    """
    shares = _shares(state)
    searched = all(not s.size(len(s.ended)) for s in stages.searches(state).values())
    if stages.kept(state) is None or not searched or len(shares) < len(stages.candidates(state)):
        return None
    best = _best(state, shares)
    if best is None:
        return plan.GIVEN
    seen = {
        plan.GIVEN: stages.given(state, CHOOSING),
        best: stages.seen(state, stages.candidates(state)[best].id, CHOOSING),
    }
    measured = {name: event for name, event in seen.items() if event is not None}
    low = _gain(state, measured, best).low
    return best if low is not None and low > 0 else plan.GIVEN


def found(state: ExpertsState) -> dict[str, Observed]:
    """Return arm → what was observed on the test slice, of those that are measured."""
    ids = compared(state) if chosen(state) is not None else {}
    every = {arm: stages.seen(state, id_, TEST) for arm, id_ in ids.items()}
    return {arm: event for arm, event in every.items() if event is not None}


def solved(state: ExpertsState) -> dict[str, Observed]:
    """Return arm → the tasks that it solves of the test slice, of the arms that are measured."""
    ids = compared(state) if chosen(state) is not None else {}
    every: dict[str, Any] = {
        arm: state.answers.get(Observe(id_, SOLVED, TEST).key) for arm, id_ in ids.items()
    }
    return {arm: event for arm, event in every.items() if event is not None}


def result_arm(state: ExpertsState) -> str | None:
    """Return the arm of the comparison that is the result; None before it is chosen."""
    best = chosen(state)
    return None if best is None else stages.arm_of(best) or best


def named(state: ExpertsState) -> dict[str, Making]:
    """Return name → recipe of all that the run makes; the first is its result once it is known."""
    recipes, best = stages.recipes(state), chosen(state)
    return {**({MODEL: recipes[best]} if best else {}), **recipes}


def results(state: ExpertsState) -> dict[str, Result]:
    """Return role → the result, with the digest of its weights."""
    id_ = named(state)[MODEL].id
    return {MODEL: Result(recipe_id=id_, digest=state.made[id_].digest)}


# ---- figures ---------------------------------------------------------------------------------


def _resampled(
    state: ExpertsState, seen: Mapping[str, Observed], *names: str
) -> dict[str, dict[str, np.ndarray]]:
    """Return name → domain → bits per byte in each resample of the windows, the same for all.

    Of the given model, and of `names`.
    """
    counts = {domain: len(some) for domain, some in seen[plan.GIVEN].items.items()}
    drawn = paired_bits.draws(counts, plan.PURPOSE, state.submitted.config.seed)
    wanted = {plan.GIVEN, *names}
    return {n: paired_bits.rates(event, drawn) for n, event in seen.items() if n in wanted}


def _gain(
    state: ExpertsState, seen: Mapping[str, Observed], ours: str, over: str = plan.GIVEN
) -> Figure:
    """Return the relative gain of a model over another one, the mean over the domains of experts."""
    config, drawn = state.submitted.config, _resampled(state, seen, ours, over)
    domains = [domain for domain in seen[ours].values if domain != config.neutral]
    points = [1 - seen[ours].values[d] / seen[over].values[d] for d in domains]
    spread = np.mean([1 - drawn[ours][d] / drawn[over][d] for d in domains], axis=0)
    items = sum(len(seen[ours].items[domain]) for domain in domains)
    return figure(math.fsum(points) / len(points), spread, items)


def gains(state: ExpertsState) -> dict[str, Figure]:
    """Return arm → its relative gain over the given model on the test slice."""
    seen = found(state)
    return {arm: _gain(state, seen, arm) for arm in seen if arm != plan.GIVEN}


def by_domain(state: ExpertsState) -> dict[str, dict[str, Figure]]:
    """Return arm → domain → relative gain on the test slice: an expert's own, and its damage."""
    seen = found(state)
    if plan.GIVEN not in seen:
        return {}
    drawn, base = _resampled(state, seen, *seen), seen[plan.GIVEN]
    return {
        arm: {
            domain: figure(
                1 - event.values[domain] / base.values[domain],
                1 - drawn[arm][domain] / drawn[plan.GIVEN][domain],
                len(event.items[domain]),
            )
            for domain in event.values
        }
        for arm, event in seen.items()
        if arm != plan.GIVEN
    }


def figures(state: ExpertsState) -> dict[str, Figure]:
    """Return the figures of a run that is measured. Counts and volumes have no interval."""
    seen, arm, config = found(state), result_arm(state), state.submitted.config
    assert arm is not None
    told = {"gain": _gain(state, seen, arm)}
    if config.neutral in seen[arm].values:
        told["drift"] = _turned(_one(state, seen, arm, config.neutral))
    drawn = comparison.drawn(seen, plan.PURPOSE, config.seed)
    base, own = paired_bits.mean(seen[plan.GIVEN]), paired_bits.mean(seen[arm])
    count = comparison.windows(seen[arm])
    told["retention"] = figure(base / own, drawn[plan.GIVEN] / drawn[arm], count)
    told["experts"] = Figure(value=len(stages.kept(state) or ()))
    for name, search in stages.searches(state).items():
        told |= {"evaluations": Figure(value=search.ended[-1].evaluations)}
        key = "hypervolume" if name == MIXTURES else f"hypervolume_{name}"
        told[key] = Figure(value=search.ended[-1].hypervolume)
    for other in (RANDOM, MODELS):
        if {MIXTURES, other} <= set(seen):
            told[f"over_{other}"] = _gain(state, seen, MIXTURES, other)
    own = [*stages.experts(state)]
    told |= beside.figures(own, seen, _resampled(state, seen, *seen))
    told |= solving.figures([f for f in own if f in config.families], solved(state), arm)
    return told | _dispatched(state)


def _one(state: ExpertsState, seen: Mapping[str, Observed], arm: str, domain: str) -> Figure:
    """Return the relative gain of an arm in one domain."""
    drawn, base = _resampled(state, seen, arm), seen[plan.GIVEN]
    return figure(
        1 - seen[arm].values[domain] / base.values[domain],
        1 - drawn[arm][domain] / drawn[plan.GIVEN][domain],
        len(seen[arm].items[domain]),
    )


def _turned(gain: Figure) -> Figure:
    """Return a gain as a loss, with the interval."""
    assert gain.low is not None
    assert gain.high is not None
    return Figure(value=-gain.value, low=-gain.high, high=-gain.low, n=gain.n)


# ---- dispatch --------------------------------------------------------------------------------


def routed(state: ExpertsState) -> Routed | None:
    """Return what the classifier chose, and what came of it; None before."""
    event = state.answers.get(Route().key)
    return event if isinstance(event, Routed) else None


def _dispatched(state: ExpertsState) -> dict[str, Figure]:
    """Return the figures of dispatch; empty if there are no experts."""
    event, told = routed(state), dict[str, Figure]()
    if event is not None and answers.wrong_routes(state, event) is None and any(event.choices):
        told["dispatch"] = _routed_gain(state, event)
        told["dispatched"] = _accuracy(state, event)
    if shots := few_shot(state):
        told["few_shot"] = shots
    return told


def _routed_gain(state: ExpertsState, event: Routed) -> Figure:
    """Return the relative gain in nats a token of windows' rests, the mean over domains of experts."""
    config, points, spread = state.submitted.config, [], []
    domains = [domain for domain in sorted(event.items) if domain != config.neutral]
    for domain in domains:
        own, base, sizes = event.items[domain], event.given[domain], event.sizes[domain]
        counts = bootstrap.draws(len(own), plan.PURPOSE, config.seed, "route", domain)
        points.append(1 - math.fsum(own) / math.fsum(base))
        ratio = bootstrap.ratio(counts, own, sizes) / bootstrap.ratio(counts, base, sizes)
        spread.append(1 - ratio)
    count = sum(len(event.items[domain]) for domain in domains)
    return figure(math.fsum(points) / len(points), np.mean(spread, axis=0), count)


def _accuracy(state: ExpertsState, event: Routed) -> Figure:
    """Return the share of windows whose own expert was chosen; of other domains: none."""
    own = {domain: number for number, domain in enumerate(stages.kept(state) or (), start=1)}
    hits = [
        float(choice == own.get(domain, 0))
        for domain, choices in sorted(event.choices.items())
        for choice in choices
    ]
    counts = bootstrap.draws(len(hits), plan.PURPOSE, state.submitted.config.seed, "choices")
    spread = bootstrap.ratio(counts, hits, [1.0] * len(hits))
    return figure(math.fsum(hits) / len(hits), spread, len(hits))


def few_shot(state: ExpertsState) -> Figure | None:
    """Return the gain if each domain has its own mixture, on the test slice; None if there is none."""
    base, config = stages.given(state, TEST), state.submitted.config
    own = {d: stages.seen(state, one.id, TEST) for d, one in stages.fitted(state).items()}
    told = {d: event for d, event in own.items() if event is not None and d != config.neutral}
    if base is None or not told:
        return None
    points, spread, count = [], [], 0
    drawn = _resampled(state, {plan.GIVEN: base, **told}, *told)
    for domain, event in told.items():
        points.append(1 - event.values[domain] / base.values[domain])
        spread.append(1 - drawn[domain][domain] / drawn[plan.GIVEN][domain])
        count += len(event.items[domain])
    return figure(math.fsum(points) / len(points), np.mean(spread, axis=0), count)


def leads(state: ExpertsState) -> dict[str, Figure]:
    """Return arm → the bits per byte that it needs more than the result, with the interval."""
    arm, seed = result_arm(state), state.submitted.config.seed
    return comparison.leads(found(state), arm, plan.PURPOSE, seed) if arm else {}
