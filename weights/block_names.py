"""Blocks of a model, by the names of its tensors and the keys of its config.json. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

#: Names that a config.json may give to the number of its blocks.
COUNT_KEYS = ("num_hidden_layers", "n_layer", "num_layers")
#: Parts of a block that its tensors belong to.
PARTS = ("attention", "mlp", "rest")
_ATTENTION = ("self_attn.", ".attn.", "attention.")
_MLP = (".mlp.", "feed_forward.", ".ffn.")
_BLOCK = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")


def block_of(name: str) -> int | None:
    """Return the block that a tensor belongs to; None for embedding, final norm and head."""
    match = _BLOCK.search(name)
    return int(match[1]) if match else None


def rename(name: str, number: int) -> str:
    """Return the name that a block's tensor has in block `number`. Raises ValueError."""
    match = _BLOCK.search(name)
    if match is None:
        raise ValueError(f"tensor {name} is in no block")
    return f"{name[: match.start(1)]}{number}{name[match.end(1) :]}"


def count(names: Sequence[str]) -> int:
    """Return the number of blocks of a model with these tensors."""
    return 1 + max((b for name in names if (b := block_of(name)) is not None), default=-1)


def with_blocks(config: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return a config.json for `count` blocks, all of the first block's kind."""
    changed = dict(config)
    for key in COUNT_KEYS:
        if key in changed:
            changed[key] = count
    if changed.get("layer_types"):
        changed["layer_types"] = [changed["layer_types"][0]] * count
    return changed


def part_of(name: str) -> str:
    """Return the part of a block that one of its tensors belongs to.

    `post_attention_layernorm` belongs to the rest, because `_` follows `attention` in its name.
    """
    if any(word in name for word in _ATTENTION):
        return "attention"
    return "mlp" if any(word in name for word in _MLP) else "rest"
