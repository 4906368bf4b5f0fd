"""Verdict of a run: the champion compared with base, sources and baselines on the test slice.

Pure.
"""

from __future__ import annotations

import math

from events import Event
from evomerge.fitness import composite, paired_bootstrap
from evomerge.fitness.composite import Fitness
from evomerge.run import events
from evomerge.run.state import RunState
from evomerge.run.tasks import Evaluate


def conclude(state: RunState) -> Event:
    """Return `completed` with the champion's lead over every rival, or `failed`."""
    assert state.champion
    assert state.started
    fitness = state.fitness((state.champion, "test", None))
    if fitness is None:
        task = Evaluate(state.champion, "test", None).key
        why = "its evaluation is in quarantine" if task in state.quarantined else "NaN or Inf"
        return events.Failed(reason=f"the champion has no fitness on the test slice: {why}")
    return events.Completed(
        champion=state.champion,
        digest=state.built[state.champion][0],
        generations=len(state.generations) - 1,
        test=fitness,
        rivals=tuple(_rivals(state)),
        lineage_digest=state.lineage_digest(),
        chain_head=state.head,
    )


def _apart(state: RunState, own_fitness: Fitness, other_fitness: Fitness) -> float:
    """Return two models' difference by speed and memory; 0 unless paths made one deeper."""
    assert state.submitted
    weights = state.submitted.config.fitness_weights.parts
    return math.fsum(
        weights[name] * (own_fitness.normalised[name] - other_fitness.normalised[name])
        for name in composite.ARCHITECTURE
    )


def _rivals(state: RunState) -> list[events.Rival]:
    """Return base, sources and baselines with the champion's leads over them on the test slice."""
    assert state.started
    assert state.submitted
    assert state.champion
    config, best = state.submitted.config, state.reference("test", None)
    outcomes = state.outcomes((state.champion, "test", None))
    own_fitness = state.fitness((state.champion, "test", None))
    assert best is not None
    assert outcomes is not None
    assert own_fitness is not None
    base = state.started.base
    named = [(s.name, "source", s.recipe_id) for s in state.started.sources]
    if base.recipe_id not in {id_ for _, _, id_ in named}:
        named.insert(0, (base.name, "base", base.recipe_id))
    named += [(name, "baseline", id_) for name, id_ in sorted(state.baselines.items())]
    rivals = []
    for name, kind, id_ in named:
        other_outcomes, fitness = (
            state.outcomes((id_, "test", None)),
            state.fitness((id_, "test", None)),
        )
        lead = None
        if fitness is not None and other_outcomes is not None:
            raw = config.normalise == "none"
            key = (config.seed, "bootstrap", id_)
            lead = paired_bootstrap.compare(
                outcomes,
                other_outcomes,
                best,
                config.fitness_weights,
                raw,
                *key,
                skills=config.skills,
            )
            lead = lead.moved(_apart(state, own_fitness, fitness))
        scalar = None if fitness is None else fitness.scalar
        rivals.append(
            events.Rival(name=name, kind=kind, recipe_id=id_, scalar=scalar, lead=lead)  # pyright: ignore[reportArgumentType]
        )
    return rivals
