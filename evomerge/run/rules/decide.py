"""Decisions of a merging run: what is due next, ranking, champion, end of the search, verdict. Pure.

`due` follows from the state of a started run, and so do the input and the proposals of its strategy.
The verdict compares the champion with base, sources and baselines on the test slice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from agent_forge.evaluation.data.slices import Slice
from agent_forge.events import Event, New
from agent_forge.evomerge.fitness import composite, paired_bootstrap
from agent_forge.evomerge.fitness.composite import Fitness
from agent_forge.evomerge.recipes.recipe import Merge
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run import state as budget
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.tasks import (
    Build,
    BuildBaseline,
    ChooseLayers,
    Evaluate,
    MeasureCost,
    Task,
)
from agent_forge.evomerge.search import Strategy, diversity, strategy
from agent_forge.evomerge.search.strategy import Generation, Measurements, Past, Proposal, SourceFamily
from agent_forge.runs.kinds.decide import NextWork, failed_key, failure

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


def due(state: RunState) -> NextWork:
    """Return the `NextWork` of a started run: tasks to do, or facts (events) to append."""
    opening = _opening(state)
    if opening:
        return NextWork(tasks=opening)
    if state.converged is None:
        return _generation(state, state.generation)
    return _finish(state)


def _new(state: RunState, event: Event, *key: str | int) -> New:
    return New(event, "/".join((state.run, *map(str, key))))


def baselines(state: RunState) -> dict[str, Merge]:
    """Return {name: fixed merge that a run must beat}."""
    kin = family(state)
    common: dict[str, Any] = {"inputs": kin.sources, "base": kin.base}
    result = {"mean": Merge(method="linear", **common)}
    for scale in (0.3, 0.5, 1.0):
        merge = Merge(method="task_arithmetic", params={"scale": scale}, **common)
        result[f"task-arithmetic-{scale:g}"] = merge
    return result


def _opening(state: RunState) -> list[Task]:
    """Return the open tasks before generation 0: profile, sources' scores, baselines."""
    kin = family(state)
    tasks: list[Task] = [] if state.profiled else [MeasureCost()]
    for slice_ in ("search", "selection"):
        tasks += _unmeasured(state, kin.sources, slice_, None)
    for name, recipe in baselines(state).items():
        if name not in state.baselines:
            tasks.append(BuildBaseline(name, recipe))
    return _sound(state, tasks)


def _sound(state: RunState, tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks that are not in quarantine."""
    return [task for task in tasks if task.key not in state.quarantined]


def _unmeasured(
    state: RunState, recipe_ids: Sequence[str], slice_: Slice, generation: int | None
) -> list[Task]:
    """Return the tasks of the evaluations that are missing, each once, in the given order."""
    missing = [
        Evaluate(id_, slice_, generation)
        for id_ in dict.fromkeys(recipe_ids)
        if (id_, slice_, generation) not in state.evaluations
    ]
    return _sound(state, missing)


def _generation(state: RunState, generation: int) -> NextWork:
    assert state.submitted
    slot_proposals, tasks = proposals(state, generation), list[Task]()
    for proposal in slot_proposals:
        built = state.candidates.get((generation, proposal.slot))
        if built is not None:
            tasks += _unmeasured(state, [built.recipe_id], "search", generation)
        else:
            tasks.append(_making(generation, proposal))
    stayed = stays(state, generation)
    tasks += _unmeasured(state, stayed, "search", generation)
    tasks = _sound(state, tasks)
    if tasks:
        return NextWork(tasks=list({task.key: task for task in tasks}.values()))
    population = _population(state, generation, slot_proposals) + stayed
    if not population:
        reason = f"nothing of generation {generation} could be built: every task is in quarantine"
        return NextWork(facts=[failure(state, reason)])
    ranking = rank(state, list(dict.fromkeys(population)), generation)
    finalists, judging = _finalists(state, generation, ranking)
    if judging:
        return NextWork(tasks=judging)
    return NextWork(facts=_generation_facts(state, generation, ranking, finalists))


def _making(generation: int, proposal: Proposal) -> Task:
    open_ = proposal.pipeline is not None and proposal.pipeline.needs_layers
    return ChooseLayers(generation, proposal) if open_ else Build(generation, proposal)


def _finalists(state: RunState, generation: int, ranking: Ranking) -> tuple[list[str], list[Task]]:
    """Return (ids of the recipes to judge on the selection slice, open tasks of judging them)."""
    key = ("finalists", generation, *(id_ for id_, _ in ranking))
    who = strategy_of(state, generation)
    named = state.remembered(key, lambda: who.finalists(told(state, generation, ranking)))
    ids, tasks = [], list[Task]()
    for finalist in named:
        built = None if isinstance(finalist, str) else state.candidates.get((generation, finalist.slot))
        if isinstance(finalist, str):
            ids.append(finalist)
        elif built is not None:  # even if a late result has moved the mean since
            ids.append(built.recipe_id)
        elif finalist.recipe.id in state.built:
            ids.append(finalist.recipe.id)
        else:
            tasks.append(_making(generation, finalist))
    ids = list(dict.fromkeys(ids))
    return ids, [*_sound(state, tasks), *_unmeasured(state, ids, "selection", None)]


def _population(state: RunState, generation: int, slot_proposals: Sequence[Proposal]) -> list[str]:
    slots = [p.slot for p in slot_proposals if (generation, p.slot) in state.candidates]
    return [state.candidates[generation, slot].recipe_id for slot in slots]


def _generation_facts(
    state: RunState, generation: int, ranking: Ranking, finalists: list[str]
) -> list[New]:
    """Return the facts that close a generation; they are appended together."""
    assert state.submitted
    assert state.started
    config = state.submitted.config
    slot_proposals = proposals(state, generation)
    sketches = [state.built[id_][1] for id_ in _population(state, generation, slot_proposals)]
    value = diversity.diversity(sketches, [s.sketch for s in state.started.sources])
    level = diversity.level(value, config.min_diversity, config.reseed_diversity)
    measured = events.DiversityMeasured(
        generation=generation,
        diversity=value,
        level=level,  # pyright: ignore[reportArgumentType]
    )
    done = events.GenerationCompleted(
        generation=generation,
        ranking=tuple(id_ for id_, _ in ranking),
        scores=tuple(score for _, score in ranking),
    )
    facts: list[Event] = [measured, done]
    champion = new_champion(state, generation, finalists)
    if champion is not None:
        facts.append(champion)
    scores = [champion_score(state, g) for g in range(generation)]
    scores.append(champion.score if champion else champion_score(state, generation))
    reason = reason_to_stop(state, generation, scores)
    if reason is not None:
        facts.append(events.Converged(generation=generation, reason=reason))
    elif level == "critical":
        after = strategy_of(state, generation + 1)
        slots = after.loser_slots(state.settings(generation + 1))
        if slots is not None:
            facts.append(events.Reseeded(generation=generation + 1, slots=slots, diversity=value))
    return [_new(state, event, "generation", generation, event.type) for event in facts]


def _finish(state: RunState) -> NextWork:
    """Return the `NextWork` after the search: evaluations on the test slice; then the last event."""
    if state.champion is None:
        reason = "no candidate of any generation has a fitness: every score was NaN or Inf"
        return NextWork(facts=[failure(state, reason)])
    kin = family(state)
    # Sources first: the scores of all other models are relative to the sources' scores.
    missing = _unmeasured(state, kin.sources, "test", None)
    static = [id_ for _, id_ in sorted(state.baselines.items())]
    ids = [state.champion, kin.base, *static]
    missing = missing or _unmeasured(state, ids, "test", None)
    if missing:
        return NextWork(tasks=missing)
    result = conclude(state)
    if isinstance(result, events.Failed):
        return NextWork(facts=[New(result, failed_key(state))])
    return NextWork(facts=[_new(state, result, "completed")])


def rank(state: RunState, population: list[str], generation: int) -> Ranking:
    """Return a list of (recipe id, score to rank by or None) of the candidates, best first.

    Candidates whose evaluation was stopped early come after the others: their fitness is of other
    items. Candidates without a fitness come last. Ties are ordered by recipe id.
    """
    assert state.submitted
    assert state.started
    weight = state.submitted.config.diversity_weight
    sketches = [state.built[id_][1] for id_ in population]
    sources = [s.sketch for s in state.started.sources]
    scores: dict[str, float | None] = {}
    for index, id_ in enumerate(population):
        fitness = state.fitness((id_, "search", generation))
        score = None if fitness is None else fitness.scalar
        if score is not None and weight:
            score += weight * diversity.own_distance(index, sketches, sources)
        scores[id_] = score

    return sorted(
        scores.items(),
        key=lambda pair: (
            pair[1] is None,
            dropped(state, pair[0], generation),
            -(pair[1] or 0.0),
            pair[0],
        ),
    )


def new_champion(
    state: RunState, generation: int, finalists: list[str]
) -> events.ChampionChanged | None:
    """Return the event that makes the best finalist, on the selection slice, champion; or None.

    None: no finalist is better than the champion before.
    """
    judged = []
    for id_ in finalists:
        fitness = state.fitness((id_, "selection", None))
        if fitness is not None:
            judged.append((-fitness.scalar, id_))
    if not judged:
        return None
    score, best = -min(judged)[0], min(judged)[1]
    before = state.champions[-1] if state.champions else None
    if before is not None and score <= before.score:
        return None
    previous = before.recipe_id if before else None
    return events.ChampionChanged(generation=generation, recipe_id=best, previous=previous, score=score)


def champion_score(state: RunState, generation: int) -> float | None:
    """Return the champion's selection score after a generation; None if there was no champion."""
    scores = [c.score for c in state.champions if c.generation <= generation]
    return scores[-1] if scores else None


def reason_to_stop(
    state: RunState, generation: int, scores: list[float | None]
) -> events.Reason | None:
    """Return why the search ends after this generation, "plateau" for instance; None if it goes on."""
    assert state.submitted
    config, before = state.submitted.config, state.closed[generation - 1]
    if generation >= config.generations:
        return "generations"
    patience = config.convergence_patience * strategy_of(state, generation).stages
    if diversity.converged(scores, config.convergence_threshold, patience):
        return "plateau"
    last = state.spent.minus(before)
    report = 0.0 if config.budget_hours is None else report_seconds(state)
    return budget.exhausted(config, state.spent, last, report)


def report_seconds(state: RunState) -> float:
    """Return the seconds by the clock that the final report will take, by what the log measured.

    It scores champion, base, sources and baselines on the whole test slice. An item is as expensive
    as the run's items were on average; the clock runs as fast against the tasks as it did so far.
    """
    assert state.started
    done = list(state.evaluations.values())
    scored = sum(budget.items(event.outcomes) for event in done)
    if not scored or not state.spent.device:
        return 0.0
    each = math.fsum(event.seconds for event in done) / scored
    test = state.draws("test", None).values()
    size = sum(len(d.windows) + len(d.questions) + len(d.problems) for d in test)
    models = 2 + len(state.started.sources) + len(state.baselines)
    return each * size * models * state.spent.wall / state.spent.device


def conclude(state: RunState) -> Event:
    """Return the event `completed` with the champion's leads over all rivals, or `failed`."""
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
    """Return two models' difference of fitness by speed and memory; 0 unless paths made one deeper."""
    assert state.submitted
    weights = state.submitted.config.fitness_weights.parts
    return math.fsum(
        weights[name] * (own_fitness.normalised[name] - other_fitness.normalised[name])
        for name in composite.ARCHITECTURE
    )


def _rivals(state: RunState) -> list[events.Rival]:
    """Return base, sources and baselines as rivals, with the champion's leads over them on test."""
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
                outcomes, other_outcomes, best, config.fitness_weights, raw, *key, skills=config.skills
            )
            lead = lead.moved(_apart(state, own_fitness, fitness))
        scalar = None if fitness is None else fitness.scalar
        rivals.append(
            events.Rival(name=name, kind=kind, recipe_id=id_, scalar=scalar, lead=lead)  # pyright: ignore[reportArgumentType]
        )
    return rivals
