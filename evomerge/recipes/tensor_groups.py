"""Groups of tensors that share genes, and the choice of blocks for a frankenmerge.

Pure. A model of B blocks is cut into D layer groups of neighbouring blocks, block b in layer group
b·D // B. Group 3·d + p is part p (attention, mlp, rest) of layer group d. The last group but one is
the embedding. The last group is the head, with the final norm and all other tensors outside of the
blocks.

A frankenmerge takes blocks by their measured gains (`evomerge/merging/layer_fitness.py`). The reasons
for both are in docs/decisions/0003-layer-fitness.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_forge.weights import block_names
from agent_forge.weights.block_names import block_of

PARTS = block_names.PARTS


def count(depths: int) -> int:
    """Return the number of groups for `depths` layer groups."""
    return len(PARTS) * depths + 2


def names(depths: int) -> list[str]:
    """Return the groups' display names in order: "layers 1/4 attention", …, "embedding", "head"."""
    inside = [f"layers {d + 1}/{depths} {part}" for d in range(depths) for part in PARTS]
    return [*inside, "embedding", "head"]


def part(group: int, depths: int) -> int:
    """Return the part of a group, 0 to 4: attention, mlp, rest, embedding, head."""
    inside = len(PARTS) * depths
    return group % len(PARTS) if group < inside else len(PARTS) + group - inside


def nearest(group: int, depths: int, other_depths: int) -> int:
    """Return the index of the group, among those of `other_depths`, that matches a group of `depths`.

    It is the same part, in the layer group at the same relative depth.
    """
    part_index = part(group, depths)
    if part_index >= len(PARTS):
        return count(other_depths) - (len(PARTS) + 2 - part_index)
    depth = group // len(PARTS)
    return len(PARTS) * ((2 * depth + 1) * other_depths // (2 * depths)) + part_index


def of(tensor: str, blocks: int, depths: int) -> int:
    """Return the index of a tensor's group, by its name, in a model of `blocks` blocks."""
    block = block_names.block_of(tensor)
    if block is None:
        place = group(tensor, blocks) - blocks
        return len(PARTS) * depths + (0 if place == 0 else 1)
    return len(PARTS) * (block * depths // blocks) + PARTS.index(block_names.part_of(tensor))


def choose(gains: Sequence[Sequence[float]]) -> tuple[int, ...]:
    """Return a choice per block: 0 keeps the earlier stages' block, k takes that of input k.

    `gains[block][k - 1]` is the measured gain of input k. At most a third of the blocks are
    replaced, those with the largest gains first, and only by a gain above 0.
    """
    best = [(max(row), -block, row.index(max(row)) + 1) for block, row in enumerate(gains) if len(row)]
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
    """Return the number of blocks, of `count`, that a pipeline may replace: at most a third."""
    return count // 3
