"""The stages of a bake as far as they are known: models, measurements, what each has chosen. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluation.trajectories.sampled import Sample, Sampled
from phases.bake import plan, prompts
from phases.bake.events import BakeState
from phases.bake.plan import Candidate
from phases.bake.prompts import Stage
from studies.comparison import CHOOSING
from studies.making.events import Making
from studies.observing import Observe, Observed
from weights.recipes import Train

BITS, DIVERGENCE = "bits-per-byte@1", "prompt-divergence@1"
#: Group of a divergence under the run's prompts; under its first n alone it is PROMPT with n.
PROMPT = "prompt"
#: Nats a token below which prompts are said to change nothing.
LEAST = 1e-4
#: Largest relative change of bits per byte with which a model is chosen if there is one.
DRIFT = 0.005


@dataclass(frozen=True)
class Known:
    """A stage that has begun."""

    stage: Stage
    #: The model that its training begins with, and the name of the model that this is.
    start: Making
    begins: str
    #: The model at the end of its training; None before its replies are sampled.
    full: Train | None = None
    #: Name → candidate.
    candidates: Mapping[str, Candidate] = field(default_factory=dict)
    #: Name → (ratio of divergences, drift) on the selection slice, of those that are measured.
    curve: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    #: The candidate that is its result; None before all are measured.
    best: str | None = None

    @property
    def sample(self) -> Sample | None:
        """The task of its teacher, if that is not the given model."""
        return plan.sample_again(self.stage, self.start) if self.stage.again else None


def group(state: BakeState, stage: Stage) -> str:
    """Return the group of the given model's divergences that belongs to a stage's prompts."""
    whole = stage.prompts == state.submitted.config.prompts
    return PROMPT if whole else f"{PROMPT}-{len(stage.prompts)}"


def effect(state: BakeState) -> Observe:
    """Return the measurement of what the prompts change at all, on the selection slice."""
    return Observe(plan.parent(state.started).id, DIVERGENCE, CHOOSING)


def base(state: BakeState) -> Observed | None:
    """Return what the prompts change; None before it is measured."""
    found = state.answers.get(effect(state).key) if state.started else None
    return found if isinstance(found, Observed) else None


def changes(state: BakeState) -> bool | None:
    """Return True if the prompts change what the given model says; None before it is measured."""
    found = base(state)
    return None if found is None else found.values[PROMPT] >= LEAST


def active(state: BakeState) -> tuple[Stage, ...]:
    """Return the stages that are trained: all but those whose prompts change nothing."""
    found, every = base(state), prompts.stages(state.submitted.config)
    if found is None:
        return every
    if not changes(state):
        return ()
    return tuple(one for one in every if found.values[group(state, one)] >= LEAST)


def known(state: BakeState) -> tuple[Known, ...]:
    """Return the stages that have begun, in their order."""
    return state.remembered(("stages",), lambda: _known(state))


def _known(state: BakeState) -> tuple[Known, ...]:
    if plan.sampled(state) is None:
        return ()
    found, begins = list[Known](), plan.PARENT
    start = plan.begin(state.started, None)
    for stage in active(state):
        one = _stage(state, Known(stage, start, begins))
        found.append(one)
        if one.best is None:
            break
        begins, start = one.best, plan.begin(state.started, one.candidates[one.best].recipe)
    return tuple(found)


def _stage(state: BakeState, begun: Known) -> Known:
    """Return a stage with all that is known of it."""
    digests, stage, config = _digests(state, begun), begun.stage, state.submitted.config
    if digests is None:
        return begun
    end = plan.full(state.submitted, state.started, stage, begun.start.id, digests)
    candidates = plan.candidates(config, stage, begun.start, end, state.started.dtype)
    curve = _curve(state, stage, candidates)
    best = _nearest(curve) if len(curve) == len(candidates) else None
    return Known(stage, begun.start, begun.begins, end, candidates, curve, best)


def _digests(state: BakeState, begun: Known) -> dict[str, str] | None:
    """Return stream → digest of what a stage can train on; None before it is sampled."""
    events: list[Any] = [plan.sampled(state)]
    if begun.sample is not None:
        events.append(state.answers.get(begun.sample.key))
    if not all(isinstance(event, Sampled) for event in events):
        return None
    return {name: one.digest for event in events for name, one in event.streams.items()}


def _curve(
    state: BakeState, stage: Stage, candidates: Mapping[str, Candidate]
) -> dict[str, tuple[float, float]]:
    """Return name → (ratio, drift) on the selection slice, of those that are measured.

    The ratio is of divergences from the given model under the stage's prompts.
    """
    unprompted, text = base(state), observed(state, plan.parent(state.started), BITS, CHOOSING)
    found: dict[str, tuple[float, float]] = {}
    if unprompted is None or text is None:
        return found
    below = unprompted.values[group(state, stage)]
    for name, one in candidates.items():
        off = observed(state, one.recipe, DIVERGENCE, CHOOSING)
        bits = observed(state, one.recipe, BITS, CHOOSING)
        if off and bits:
            found[name] = off.values[PROMPT] / below, drift(text, bits)
    return found


def _nearest(curve: Mapping[str, tuple[float, float]]) -> str:
    """Return the model with the least ratio of those that do not drift; of all if all do."""
    good = [name for name, (_, off) in curve.items() if off <= DRIFT]
    return min(good or curve, key=lambda name: curve[name][0])


def observed(state: BakeState, recipe: Making, measure: str, on: str) -> Observed | None:
    """Return what was observed of a recipe; None before."""
    found = state.answers.get(Observe(recipe.id, measure, on).key)
    return found if isinstance(found, Observed) else None


def drift(text: Observed, bits: Observed) -> float:
    """Return the largest relative change of bits per byte of a domain, up or down."""
    return max(abs(bits.values[d] / value - 1) for d, value in text.values.items())


def trainings(state: BakeState) -> dict[str, Train]:
    """Return name → recipe of the whole training of each stage that is known."""
    return {
        plan.name(1.0, one.stage.number): one.full for one in known(state) if one.full is not None
    }


def recipes(state: BakeState) -> dict[str, Making]:
    """Return name → recipe of all that the run makes, as far as it is known now."""
    found: dict[str, Making] = {plan.PARENT: plan.parent(state.started)}
    for one in known(state):
        if one.full is not None:
            found[plan.name(1.0, one.stage.number)] = one.full
        found |= {name: candidate.recipe for name, candidate in one.candidates.items()}
        if state.started.dtype is not None:
            found |= _unrounded(one)
    return found


def _unrounded(one: Known) -> dict[str, Making]:
    """Return name → recipe of the models in float32 that a stage's candidates are rounded from."""
    recipes: dict[str, Making] = {}
    if one.stage.number > 1:
        recipes[f"{plan.PURPOSE}-{one.stage.number}-start"] = one.start
    for name, candidate in one.candidates.items():
        if candidate.early and candidate.training is not None:
            recipes[f"{name}-float32"] = candidate.training
    return recipes


def stage_of(state: BakeState, recipe_id: str) -> Stage:
    """Return the stage that a recipe is a candidate of. Raises StopIteration for any other."""
    return next(
        one.stage
        for one in known(state)
        if any(candidate.recipe.id == recipe_id for candidate in one.candidates.values())
    )
