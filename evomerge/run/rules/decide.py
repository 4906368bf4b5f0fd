"""`due`: what a merging run does next once it has started, as a pure function of its state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evaluation.data.slices import Slice
from events import Event, New
from evomerge.recipes.recipe import Merge
from evomerge.run import events
from evomerge.run.rules.ranking import champion_score, new_champion, rank, reason_to_stop
from evomerge.run.rules.strategy_input import Ranking, family, proposals, stays, strategy_of, told
from evomerge.run.rules.verdict import conclude
from evomerge.run.state import RunState
from evomerge.run.tasks import Build, BuildBaseline, ChooseLayers, Evaluate, Measure, Task
from evomerge.search import diversity
from evomerge.search.proposals import Proposal
from runs.kinds.retries import failed_key, failure
from runs.kinds.tasks import Decision


def due(state: RunState) -> Decision:
    """Return what there is to do once the run has started."""
    opening = _opening(state)
    if opening:
        return Decision(tasks=opening)
    if state.converged is None:
        return _generation(state, state.generation)
    return _finish(state)


def _new(state: RunState, event: Event, *key: str | int) -> New:
    return New(event, "/".join((state.run, *map(str, key))))


def baselines(state: RunState) -> dict[str, Merge]:
    """Return name → the fixed merges that a run must beat."""
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
    tasks: list[Task] = [] if state.profiled else [Measure()]
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
    """Return the evaluations that are missing, each once, in the given order."""
    missing = [
        Evaluate(id_, slice_, generation)
        for id_ in dict.fromkeys(recipe_ids)
        if (id_, slice_, generation) not in state.evaluations
    ]
    return _sound(state, missing)


def _generation(state: RunState, generation: int) -> Decision:
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
        return Decision(tasks=list({task.key: task for task in tasks}.values()))
    population = _population(state, generation, slot_proposals) + stayed
    if not population:
        reason = f"nothing of generation {generation} could be built: every task is in quarantine"
        return Decision(facts=[failure(state, reason)])
    ranking = rank(state, list(dict.fromkeys(population)), generation)
    finalists, judging = _finalists(state, generation, ranking)
    if judging:
        return Decision(tasks=judging)
    return Decision(facts=_generation_facts(state, generation, ranking, finalists))


def _making(generation: int, proposal: Proposal) -> Task:
    open_ = proposal.pipeline is not None and proposal.pipeline.needs_layers
    return ChooseLayers(generation, proposal) if open_ else Build(generation, proposal)


def _finalists(state: RunState, generation: int, ranking: Ranking) -> tuple[list[str], list[Task]]:
    """Return the recipes to judge on the selection slice, and the open tasks of judging them."""
    key = ("finalists", generation, *(id_ for id_, _ in ranking))
    who = strategy_of(state, generation)
    named = state.remembered(key, lambda: who.finalists(told(state, generation, ranking)))
    ids, tasks = [], list[Task]()
    for finalist in named:
        built = (
            None if isinstance(finalist, str) else state.candidates.get((generation, finalist.slot))
        )
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
    state: RunState,
    generation: int,
    ranking: Ranking,
    finalists: list[str],
) -> list[New]:
    """Return the facts that close a generation, in one append."""
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


def _finish(state: RunState) -> Decision:
    """Return what is due after the search: each model on the test slice, once; then the result."""
    if state.champion is None:
        reason = "no candidate of any generation has a fitness: every score was NaN or Inf"
        return Decision(facts=[failure(state, reason)])
    kin = family(state)
    # Sources first: the scores of all other models are relative to the sources' scores.
    missing = _unmeasured(state, kin.sources, "test", None)
    static = [id_ for _, id_ in sorted(state.baselines.items())]
    ids = [state.champion, kin.base, *static]
    missing = missing or _unmeasured(state, ids, "test", None)
    if missing:
        return Decision(tasks=missing)
    result = conclude(state)
    if isinstance(result, events.Failed):
        return Decision(facts=[New(result, failed_key(state))])
    return Decision(facts=[_new(state, result, "completed")])
