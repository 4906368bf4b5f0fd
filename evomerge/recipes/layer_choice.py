"""Which blocks a frankenmerge takes from which input, given the measured gains. Pure.

The measure itself is in `layers.py`; how both were chosen: docs/decisions/0003-layer-fitness.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from evomerge.merging.methods import frankenmerge


def choose(gains: Sequence[Sequence[float]]) -> tuple[int, ...]:
    """Per block: 0 to keep the stages' own, k to take input k. Pure."""
    best = [
        (max(row), -block, row.index(max(row)) + 1) for block, row in enumerate(gains) if len(row)
    ]
    chosen = [0] * len(gains)
    for gain, negative, pick in sorted(best, reverse=True)[: frankenmerge.replaceable(len(gains))]:
        if gain > 0:
            chosen[-negative] = pick
    return tuple(chosen)
