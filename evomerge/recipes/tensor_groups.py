"""Groups of tensors that share genes: layer groups × {attention, mlp, rest}, embedding, head.

Pure. A model of B blocks is cut into D layer groups of neighbouring blocks, block b in layer group
b·D // B. Group 3·d + p is part p of layer group d. The last group but one is the embedding. The
last group is the head, with the final norm and all other tensors outside of the blocks.
"""

from __future__ import annotations

from evomerge.recipes import layer_choice
from weights import block_names

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
    """Return the group, in a cut into `other_depths` layer groups, that matches `group` of `depths`.

    It is the same part, in the layer group at the same relative depth.
    """
    part_index = part(group, depths)
    if part_index >= len(PARTS):
        return count(other_depths) - (len(PARTS) + 2 - part_index)
    depth = group // len(PARTS)
    return len(PARTS) * ((2 * depth + 1) * other_depths // (2 * depths)) + part_index


def of(tensor: str, blocks: int, depths: int) -> int:
    """Return the group of a tensor, by its name, in a model of `blocks` blocks."""
    block = block_names.block_of(tensor)
    if block is None:
        place = layer_choice.group(tensor, blocks) - blocks
        return len(PARTS) * depths + (0 if place == 0 else 1)
    return len(PARTS) * (block * depths // blocks) + PARTS.index(block_names.part_of(tensor))
