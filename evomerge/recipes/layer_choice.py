"""Which blocks a frankenmerge takes from which input, given the measured gains. Pure.

The measure itself is in `evomerge/merging/layer_fitness.py`. How both were chosen:
docs/decisions/0003-layer-fitness.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from weights.block_names import block_of


def choose(gains: Sequence[Sequence[float]]) -> tuple[int, ...]:
    """Per block: 0 to keep the stages' own, k to take input k. Pure."""
    best = [
        (max(row), -block, row.index(max(row)) + 1) for block, row in enumerate(gains) if len(row)
    ]
    chosen = [0] * len(gains)
    for gain, negative, pick in sorted(best, reverse=True)[: replaceable(len(gains))]:
        if gain > 0:
            chosen[-negative] = pick
    return tuple(chosen)


def group(name: str, count: int) -> int:
    """Where in `layers` a tensor's entry is: its block, then embedding, final norm, head."""
    own = block_of(name)
    if own is not None:
        return own
    if "embed" in name or "wte" in name or "wpe" in name:
        return count
    return count + 2 if "lm_head" in name else count + 1


def replaceable(count: int) -> int:
    """How many of `count` blocks a pipeline may replace: at most a third."""
    return count // 3
