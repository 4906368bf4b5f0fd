"""Ranking of a generation, choice of its champion, and the end of the search.

Pure.
"""

from __future__ import annotations

import math

from evomerge.run import budget, events
from evomerge.run.rules.strategy_input import Ranking, dropped, strategy_of
from evomerge.run.state import RunState
from evomerge.search import convergence, diversity


def rank(state: RunState, population: list[str], generation: int) -> Ranking:
    """Return recipe ids and the scores that candidates are ranked by, best first.

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
    """Return the change of champion to the best finalist on the selection slice.

    None if no finalist is better than the champion before.
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
    return events.ChampionChanged(
        generation=generation, recipe_id=best, previous=previous, score=score
    )


def champion_score(state: RunState, generation: int) -> float | None:
    """Return the champion's selection score after a generation; None if there was no champion."""
    scores = [c.score for c in state.champions if c.generation <= generation]
    return scores[-1] if scores else None


def reason_to_stop(
    state: RunState, generation: int, scores: list[float | None]
) -> events.Reason | None:
    """Return why the search ends after this generation; None if it goes on."""
    assert state.submitted
    config, before = state.submitted.config, state.closed[generation - 1]
    if generation >= config.generations:
        return "generations"
    patience = config.convergence_patience * strategy_of(state, generation).stages
    if convergence.converged(scores, config.convergence_threshold, patience):
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
