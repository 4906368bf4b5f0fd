"""Niches by items: a candidate that solves items which few others solve counts for more.

After M2N2 (Abrantes, Lange, Tang 2025, "Competition and attraction improve model fusion", arXiv
2508.16204), on the per-item outcomes in the log. Pure.

    sharing      f(i) = Σ_j s_ij / Σ_k s_kj      candidates share each item's worth by their scores
    attraction   g(a, b) = Σ_j max(s_bj − s_aj, 0) / Σ_k s_kj      what b has and a lacks

s_ij in [0, 1] is the score of candidate i on item j: the geometric mean of the probabilities of a
window's tokens, 1 for a right choice, or how right the reply to a problem was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from agent_forge.evaluation.data.outcomes import Outcomes
from agent_forge.evomerge.search.strategy import Past

#: Items whose scores add up to no more than this have no worth to share.
NOTHING = 1e-12


def reached(outcomes: Outcomes) -> list[float]:
    """Return a candidate's score in [0, 1] on each item, in a fixed order."""
    scores: list[float] = []
    for name in sorted(outcomes):
        outcome = outcomes[name]
        scores += [
            math.exp(-nll / n) if n else 0.0 for nll, n in zip(outcome.nll, outcome.tokens, strict=True)
        ]
        scores += [float(r) for r in outcome.right]
        scores += [float(s) for s in outcome.solved]
    return scores


def totals(table: Mapping[str, Sequence[float]]) -> list[float]:
    """Return each item's sum of scores over the candidates."""
    return [math.fsum(column) for column in zip(*table.values(), strict=True)]


def shared(table: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return {candidate: its share of all items' worth}, f of the module's docstring."""
    sums = totals(table)
    return {
        id_: math.fsum(s / t for s, t in zip(row, sums, strict=True) if t > NOTHING)
        for id_, row in table.items()
    }


def attraction(table: Mapping[str, Sequence[float]], a: str, b: str) -> float:
    """Return how much b would add to a, at least 0: g of the module's docstring."""
    return math.fsum(
        max(y - x, 0.0) / t
        for x, y, t in zip(table[a], table[b], totals(table), strict=True)
        if t > NOTHING
    )


def complement(past: Past, first: str, candidates: Sequence[str]) -> str:
    """Return the id of the candidate that adds most to `first`; of equals the earlier one.

    If `first` was not measured, or if some candidates saw fewer items than the rest, return the
    first of `candidates`.
    """
    table = _table(past, (first, *candidates))
    if first not in table or len({len(row) for row in table.values()}) != 1:  # some ended early
        return candidates[0]
    return max(
        (id_ for id_ in candidates if id_ in table),
        default=candidates[0],
        key=lambda id_: attraction(table, first, id_),
    )


def by_share(past: Past) -> list[str]:
    """Return the ids of the generation's candidates by their share, the largest first.

    Candidates whose evaluation stopped early come last, in order of rank.
    """
    ranking = past.generations[-1].ranking
    table = _table(past, ranking)
    most = max(map(len, table.values()), default=0)
    worth = shared({id_: row for id_, row in table.items() if len(row) == most})
    return sorted(ranking, key=lambda id_: (-worth.get(id_, -math.inf), ranking.index(id_)))


def _table(past: Past, ids: Sequence[str]) -> dict[str, list[float]]:
    """Return {candidate: its scores on the items it saw}; unmeasured candidates are left out."""
    number, scores = past.generations[-1].number, {}
    for id_ in ids:
        outcomes = past.measured.outcomes((id_, "search", number))
        if outcomes:
            scores[id_] = reached(outcomes)
    return scores
