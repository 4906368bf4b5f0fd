"""Input of a run's strategy, and the proposals that the strategy returns.

Pure; both follow from the state.
"""

from __future__ import annotations

from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.search import Strategy, strategy
from agent_forge.evomerge.search.strategy import Generation, Measurements, Past, Proposal, SourceFamily

#: Recipe ids and scores, best first.
Ranking = list[tuple[str, float | None]]


def family(state: RunState) -> SourceFamily:
    """Return the run's `SourceFamily`: ids of sources and base, and the number of blocks."""
    assert state.started
    sources = tuple(s.recipe_id for s in state.started.sources)
    return SourceFamily(sources, state.started.base.recipe_id, state.started.blocks)


def strategy_of(state: RunState, generation: int) -> Strategy:
    """Return the strategy that decides a generation, in its recorded version.

    Raises StrategyError.
    """
    return strategy(state.version_of(generation))


def told(state: RunState, generation: int, ranking: Ranking | None = None) -> Past:
    """Return the `Past`, what the strategy knows before a generation; with `ranking`, at its end."""
    closed = ((g, state.generations[g]) for g in range(generation))
    generations = [_told(state, g, list(zip(e.ranking, e.scores, strict=True))) for g, e in closed]
    if ranking is not None:
        generations.append(_told(state, generation, ranking))
    before = [c.recipe_id for c in state.champions if c.generation < len(generations)]
    return Past(
        family=family(state),
        settings=state.settings,
        recipes=state.recipes,
        generations=tuple(generations),
        since=state.since(generation),
        champion=before[-1] if before else None,
        reseeded=frozenset(state.reseeded),
        measured=Measurements(state.components, state.fitness, state.outcomes),
    )


def _told(state: RunState, generation: int, ranking: Ranking) -> Generation:
    candidates = {slot: state.candidates[generation, slot] for slot in state.slots(generation)}
    return Generation(
        number=generation,
        slots={slot: candidate.recipe_id for slot, candidate in candidates.items()},
        ranking=tuple(id_ for id_, _ in ranking),
        scores=tuple(score for _, score in ranking),
        parents={slot: getattr(c, "parents", ()) for slot, c in candidates.items()},
        dropped=frozenset(id_ for id_, _ in ranking if dropped(state, id_, generation)),
    )


def dropped(state: RunState, id_: str, generation: int) -> bool:
    """Return True if a candidate's evaluation was stopped early in a generation."""
    event = state.evaluations.get((id_, "search", generation))
    return event is not None and event.stopped is not None


def proposals(state: RunState, generation: int) -> list[Proposal]:
    """Return the strategy's proposals for a generation's slots, chosen layers filled in."""
    plain_proposals, _ = _remembered(state, generation)
    return [_filled(state, generation, proposal) for proposal in plain_proposals]


def _ask(state: RunState, generation: int) -> tuple[list[Proposal], list[str]]:
    """Return (the strategy's proposals, ids of earlier generations' recipes to evaluate again)."""
    past, who = told(state, generation), strategy_of(state, generation)
    return who.ask(past), who.stayed(past)


def stays(state: RunState, generation: int) -> list[str]:
    """Return the ids of earlier generations' recipes to evaluate again on this generation's draw."""
    return _remembered(state, generation)[1]


def _remembered(state: RunState, generation: int) -> tuple[list[Proposal], list[str]]:
    return state.remembered(("ask", generation), lambda: _ask(state, generation))


def _filled(state: RunState, generation: int, proposal: Proposal) -> Proposal:
    chosen = state.layers.get((generation, proposal.slot))
    open_ = proposal.pipeline is not None and proposal.pipeline.needs_layers
    return proposal.with_layers(chosen.layers) if open_ and chosen else proposal
