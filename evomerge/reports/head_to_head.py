"""Comparison of a candidate with another model of its run, on items that both were measured on.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent_forge.evaluation.data.outcomes import Draws, Outcomes, pick
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.measures.bootstrap import Comparison
from agent_forge.evomerge.fitness.paired_bootstrap import Contest, Names, compare, contest, itemise
from agent_forge.evomerge.run.state import EvaluationKey, RunState
from agent_forge.evomerge.run.views import candidates
from agent_forge.runs.errors import ConfigError, NotFoundError

#: Slices in the reverse of the order in which a run measures on them.
LAST_FIRST: tuple[Slice, ...] = ("test", "selection", "search")


@dataclass(frozen=True)
class HeadToHead:
    """Two models' outcomes on the same items."""

    mine: str
    #: The other model's name, or the beginning of its id.
    name: str
    slice: Slice
    generation: int | None
    #: Why the candidate's evaluation was ended early, if it was.
    stopped: str | None
    draws: Draws
    outcomes: Outcomes
    others: Outcomes
    #: Difference of fitness; None if the evaluation was stopped early or there is no reference.
    difference: Comparison | None
    #: The dtype that evaluation computed in.
    computed_in: str

    def contests(self, names: Names | None) -> list[Contest]:
        """Return one `Contest` per item, both models' results; without `names` items are numbered."""
        items = itemise(self.outcomes, self.draws, names)
        return contest(items, itemise(self.others, self.draws, names), self.computed_in)


def beside(state: RunState, recipe_id: str, slice_: Slice | None, against: str | None) -> HeadToHead:
    """Return the `HeadToHead` of a candidate with the model `against`, or the best source if None.

    The slice is `slice_`, or the last that the candidate was measured on. Raises NotFoundError or
    ConfigError.
    """
    key = _measured(state, recipe_id, slice_)
    event = state.evaluations[key]
    if event.components is None:
        raise ConfigError(f"candidate {recipe_id[:12]} has no scores there: {event.why_none}.")
    assert state.started
    draws = event.scored or state.draws(key[1], key[2])
    name, other = _named(state, against) if against else _best(state, key)
    whole = state.evaluations.get((other, key[1], None))
    evaluation = state.evaluations.get((other, key[1], key[2]))
    if whole is not None and whole.components:
        other_outcomes = pick(whole.outcomes, draws)
    elif evaluation is not None and evaluation.scored == event.scored and evaluation.components:
        other_outcomes = evaluation.outcomes
    else:
        raise ConfigError(f"{name} was not measured on the same items of the {key[1]} slice.")
    return HeadToHead(
        mine=recipe_id,
        name=name,
        slice=key[1],
        generation=key[2],
        stopped=event.stopped,
        draws=draws,
        outcomes=event.outcomes,
        others=other_outcomes,
        difference=_difference(state, key, event.outcomes, other_outcomes, other),
        computed_in=state.started.profile.computed_in,
    )


def _measured(state: RunState, recipe_id: str, slice_: Slice | None) -> EvaluationKey:
    """Return (recipe id, slice, generation) of a candidate's last evaluation, on `slice_` if given.

    Raises NotFoundError.
    """
    keys = [k for k in state.evaluations if k[0] == recipe_id and slice_ in (None, k[1])]
    if not keys:
        where = f" on the {slice_} slice" if slice_ else ""
        raise NotFoundError(f"candidate {recipe_id[:12]} was not measured{where}.")
    return min(keys, key=lambda k: (LAST_FIRST.index(k[1]), -1 if k[2] is None else -k[2] - 1))


def _named(state: RunState, name: str) -> tuple[str, str]:
    """Return (name, recipe id) of a source, the base, a baseline or a candidate."""
    assert state.started
    ids = {s.name: s.recipe_id for s in (state.started.base, *state.started.sources)}
    ids |= state.baselines
    if name in ids:
        return name, ids[name]
    recipe_id = candidates.find(state, name)
    return recipe_id[:12], recipe_id


def _best(state: RunState, key: EvaluationKey) -> tuple[str, str]:
    """Return (name, recipe id) of the source with the highest fitness on an evaluation's items.

    Raises NotFoundError if no source has a fitness there.
    """
    assert state.started
    scores = []
    for place, source in enumerate(state.started.sources):
        fitness = state.fitness((source.recipe_id, key[1], key[2]))
        if fitness is not None:
            scores.append((-fitness.scalar, place, source))
    if not scores:
        raise NotFoundError(f"no source was measured on the {key[1]} slice.")
    best = min(scores)[2]
    return best.name, best.recipe_id


def _difference(
    state: RunState, key: EvaluationKey, outcomes: Outcomes, other_outcomes: Outcomes, other: str
) -> Comparison | None:
    """Return the `Comparison` of fitness, with an interval, as the final report has it; or None.

    None if the evaluation was stopped early or there is no reference.
    """
    assert state.submitted
    config, best = state.submitted.config, state.reference(key[1], key[2])
    if best is None or state.evaluations[key].scored is not None:
        return None
    raw = config.normalise == "none"
    how = (config.seed, "bootstrap", other)
    return compare(
        outcomes, other_outcomes, best, config.fitness_weights, raw, *how, skills=config.skills
    )
