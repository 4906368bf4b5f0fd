"""Attraction by items: a parent that solves what the other does not. Pure.

After M2N2 (Abrantes, Lange, Tang 2025, "Competition and attraction improve model fusion", arXiv
2508.16204), on the per-item outcomes that the log has:

    g(a, b) = Σ_j max(s_bj − s_aj, 0) / Σ_k s_kj      what b has and a lacks

where each item counts for less the more candidates reach it. s_ij in [0, 1] is what candidate i reaches on item j: the probability it gives a token of a window on
the (geometric) average, a right choice, a solved problem.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from evomerge.fitness.outcomes import Outcomes
from evomerge.search.past import Past

#: Where nobody reaches anything, an item shares out nothing.
NOTHING = 1e-12


def reached(outcomes: Outcomes) -> list[float]:
    """What a candidate reaches on each item, in a fixed order."""
    found: list[float] = []
    for name in sorted(outcomes):
        own = outcomes[name]
        found += [
            math.exp(-nll / n) if n else 0.0 for nll, n in zip(own.nll, own.tokens, strict=True)
        ]
        found += [float(r) for r in own.right]
        found += [float(s) for s in own.solved]
    return found


def totals(table: Mapping[str, Sequence[float]]) -> list[float]:
    """Σ over candidates of what each item gives."""
    return [math.fsum(column) for column in zip(*table.values(), strict=True)]


def attraction(table: Mapping[str, Sequence[float]], a: str, b: str) -> float:
    """What b would bring to a."""
    return math.fsum(
        max(y - x, 0.0) / t
        for x, y, t in zip(table[a], table[b], totals(table), strict=True)
        if t > NOTHING
    )


def complement(past: Past, first: str, others: Sequence[str]) -> str:
    """Of the others, the one that brings most to the first; the first of equals."""
    number = past.generations[-1].number
    table = {}
    for id_ in (first, *others):
        seen = past.measured.outcomes((id_, "search", number))
        if seen:
            table[id_] = reached(seen)
    sizes = {len(row) for row in table.values()}
    if first not in table or len(sizes) != 1:  # not measured, or ended early
        return others[0]
    return max((id_ for id_ in others if id_ in table), default=others[0],
               key=lambda id_: attraction(table, first, id_))  # fmt: skip
