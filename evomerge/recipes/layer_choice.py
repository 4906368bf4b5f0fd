"""Choice of the blocks that a frankenmerge takes from its inputs, given the measured gains.

Pure. The measure itself is in `evomerge/merging/layer_fitness.py`. The reasons for both are in
docs/decisions/0003-layer-fitness.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from weights.block_names import block_of


def choose(gains: Sequence[Sequence[float]]) -> tuple[int, ...]:
    """Choose per block: 0 keeps the block of the earlier stages, k takes the block of input k.

    `gains[block][k - 1]` is the measured gain of input k. At most a third of the blocks are
    replaced, those with the largest gains first, and only by a gain above 0.
    """
    best = [
        (max(row), -block, row.index(max(row)) + 1) for block, row in enumerate(gains) if len(row)
    ]
    chosen = [0] * len(gains)
    for gain, negative, pick in sorted(best, reverse=True)[: replaceable(len(gains))]:
        if gain > 0:
            chosen[-negative] = pick
    return tuple(chosen)


def group(name: str, count: int) -> int:
    """Return the index of a tensor's entry in `layers`, in a model of `count` blocks.

    The order is the blocks, then embedding, final norm, head.
    """
    block = block_of(name)
    if block is not None:
        return block
    if "embed" in name or "wte" in name or "wpe" in name:
        return count
    return count + 2 if "lm_head" in name else count + 1


def replaceable(count: int) -> int:
    """Return how many of `count` blocks a pipeline may replace: at most a third."""
    return count // 3
