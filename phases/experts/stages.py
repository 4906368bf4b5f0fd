"""Stages of an experts run as they follow from what it has found: experts, arms, candidates. Pure."""

from __future__ import annotations

from typing import Any

from phases.experts import plan
from phases.experts.events import ExpertsState, Fit, Fitted
from phases.experts.search.generations import ARMS, Search, spaces
from phases.experts.solving import SOLVED
from studies import given_dtype
from studies.comparison import CHOOSING
from studies.making.events import Making
from studies.observing import Observe, Observed
from studies.training_plan import as_float32
from weights.recipes import Train, Transform

BITS = "bits-per-byte@1"
#: The slice that mixtures are searched on.
SEARCH = "search"


def seen(state: ExpertsState, recipe_id: str, on: str) -> Observed | None:
    """Return the bits per byte of a model on a slice; None before."""
    event: Any = state.answers.get(Observe(recipe_id, BITS, on).key)
    return event


def given(state: ExpertsState, on: str) -> Observed | None:
    """Return the bits per byte of the given model on a slice; None before."""
    return seen(state, plan.given(state.started).id, on)


def parted(event: Observed, given: Observed) -> dict[str, float]:
    """Return domain → bits per byte over the given model's."""
    return {domain: event.values[domain] / given.values[domain] for domain in sorted(given.values)}


# ---- experts ---------------------------------------------------------------------------------


def order(state: ExpertsState) -> tuple[str, ...]:
    """Return the domains that an expert may be of, the worst predicted first; () before assessing.

    Runs of an earlier version may have a domain without text to choose by: no expert is of it.
    """
    event = given(state, CHOOSING)
    if event is None:
        return ()
    own = [d for d in plan.trainable(state.submitted, state.started) if d in event.values]
    return tuple(sorted(own, key=lambda domain: (-event.values[domain], domain)))


def weak(state: ExpertsState) -> tuple[str, ...]:
    """Return the families that the given model is weak at, the least solved first; () before."""
    config = state.submitted.config
    event: Any = state.answers.get(Observe(plan.given(state.started).id, SOLVED, CHOOSING).key)
    if event is None:
        return ()
    own = [family for family in config.families if event.values[family] < config.weak]
    return tuple(sorted(own, key=lambda family: (event.values[family], family)))


def experts(state: ExpertsState) -> dict[str, Train]:
    """Return domain or family → recipe of every expert that the run trains, as far as it is known.

    Of the worst domains, and of the worst families, as many of each at most.
    """

    def known() -> dict[str, Train]:
        most = state.submitted.config.experts
        chosen = (*order(state)[:most], *weak(state)[:most])
        return {domain: plan.expert(state.submitted, state.started, domain) for domain in chosen}

    return state.remembered(("experts",), known)


def loras(state: ExpertsState) -> dict[str, Train]:
    """Return domain → recipe of the model with adapters beside each expert; empty without them."""
    if state.started.adapters is None:
        return {}

    def known() -> dict[str, Train]:
        return {d: plan.lora(state.submitted, state.started, d) for d in experts(state)}

    return state.remembered(("loras",), known)


def singles(state: ExpertsState) -> dict[str, Transform]:
    """Return domain → recipe of the given model with that domain's expert alone."""
    own = lambda: {domain: plan.only(state, domain) for domain in experts(state)}  # noqa: E731
    return state.remembered(("singles",), own)


def kept(state: ExpertsState) -> tuple[str, ...] | None:
    """Return the domains whose experts predict them better than the given model; None before.

    Experts that do not are left out of the search.
    """
    return state.remembered(("kept",), lambda: _kept(state))


def _kept(state: ExpertsState) -> tuple[str, ...] | None:
    base = given(state, CHOOSING)
    if base is None:
        return None
    found = []
    for domain, recipe in singles(state).items():
        event = seen(state, recipe.id, CHOOSING)
        if event is None:
            return None
        if event.values[domain] < base.values[domain]:
            found.append(domain)
    return tuple(found)


# ---- the search ------------------------------------------------------------------------------


def searches(state: ExpertsState) -> dict[str, Search]:
    """Return arm → its search; empty before the experts are measured, or without any part."""
    own, base = kept(state), given(state, SEARCH)
    if own is None or base is None or not state.submitted.config.evaluations:
        return {}
    found = spaces(len(state.started.merges), own)
    return {arm: Search(state, arm, space, base) for arm, space in found.items()}


def finalists(state: ExpertsState) -> dict[str, tuple[str, Transform]]:
    """Return name → (arm, recipe) of the best mixtures of every arm, once its search has ended.

    They are as `Search.finalists` says.
    """
    done = tuple(sorted((arm, len(events)) for arm, events in state.generations.items()))
    return state.remembered(("finalists", done), lambda: _finalists(state))


def _finalists(state: ExpertsState) -> dict[str, tuple[str, Transform]]:
    found: dict[str, tuple[str, Transform]] = {}
    for arm, search in searches(state).items():
        ended = search.ended
        if not ended or search.size(len(ended)):
            continue
        for number, id_ in enumerate(search.finalists()):
            recipe = plan.mixture(state, search.space.experts, search.factors(id_))
            found[f"{arm}-{number + 1}"] = arm, recipe
    return found


def uniform(state: ExpertsState) -> dict[str, Transform]:
    """Return the mean of the further models, by its name; empty without any."""
    count = len(state.started.merges)
    if not count:
        return {}
    return {plan.MEAN: plan.mixture(state, (), (round(1 / count, 6),) * count)}


# ---- dispatch --------------------------------------------------------------------------------


def fits(state: ExpertsState) -> list[Fit]:
    """Return the tasks that find a mixture of experts for each domain with training text."""
    if not kept(state):
        return []
    config = state.submitted.config
    return [Fit(domain) for domain in config.domains if domain in state.started.streams]


def fitted(state: ExpertsState) -> dict[str, Transform]:
    """Return domain → recipe of the mixture that was found for it."""
    found = {}
    for task in fits(state):
        event = state.answers.get(task.key)
        if isinstance(event, Fitted):
            none = (0.0,) * len(state.started.merges)
            factors = (*none, *event.factors)
            found[task.domain] = plan.mixture(state, kept(state) or (), factors)
    return found


# ---- all -------------------------------------------------------------------------------------


def candidates(state: ExpertsState) -> dict[str, Transform]:
    """Return name → recipe of the models that one is chosen of, the given one not among them."""
    alone = {f"{plan.ONLY}{domain}": recipe for domain, recipe in singles(state).items()}
    found = {name: recipe for name, (_, recipe) in finalists(state).items()}
    return {**found, **alone, **uniform(state)}


def recipes(state: ExpertsState) -> dict[str, Making]:
    """Return name → recipe of all that the run makes, as far as it is known; each after its inputs."""
    submitted, started = state.submitted, state.started
    found: dict[str, Making] = {
        **given_dtype.with_rounded(started, {plan.GIVEN: as_float32(started)}),
        plan.SVD: plan.decomposition(submitted, started),
        plan.ONES: plan.ones(submitted, started),
    }
    found |= {f"{plan.EXPERT}{domain}": recipe for domain, recipe in experts(state).items()}
    found |= {f"{plan.LORA}{domain}": recipe for domain, recipe in loras(state).items()}
    found |= candidates(state)
    return found | {f"{plan.FITTED}{domain}": one for domain, one in fitted(state).items()}


def arm_of(name: str) -> str:
    """Return the arm of a finalist by its name; empty for another model."""
    arm = name.rpartition("-")[0]
    return arm if arm in ARMS else ""
