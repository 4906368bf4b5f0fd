"""Blocks (layers) of a model, found by the names of its tensors and the keys of config.json. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

#: Names that a config.json may give to the number of its blocks.
COUNT_KEYS = ("num_hidden_layers", "n_layer", "num_layers")
#: Lists of a config.json that name blocks by their numbers.
BLOCK_NUMBERS = (
    "mlp_only_layers",
    "moe_layers",
    "full_attn_idxs",
    "cross_attention_layers",
    "ple_layer_ids",
)
#: Ends of the keys of lists that are not about blocks, though they may have as many entries.
_OTHER_LISTS = ("_ids", "_id", "architectures", "_multipliers", "_pinpoints", "_section")
#: Parts of a block that its tensors belong to.
PARTS = ("attention", "mlp", "rest")
_ATTENTION = ("self_attn.", ".attn.", "attention.")
_MLP = (".mlp.", "feed_forward.", ".ffn.")
_BLOCK = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
#: Parts of a model with blocks of their own, beside those of its decoder.
_TOWER = re.compile(r"(?:^|[._])(?:vision|visual|image|video|audio|speech)")


def block_of(name: str) -> int | None:
    """Return the number, from 0, of a tensor's block; None for embedding, final norm and head."""
    match = _BLOCK.search(name)
    return int(match[1]) if match else None


def rename(name: str, number: int) -> str:
    """Return a tensor's name with its block's number replaced by `number`. Raises ValueError."""
    match = _BLOCK.search(name)
    if match is None:
        raise ValueError(f"tensor {name} is in no block")
    return f"{name[: match.start(1)]}{number}{name[match.end(1) :]}"


def of_decoder(names: Sequence[str]) -> list[str]:
    """Return those of `names` that are in blocks of the decoder; of all blocks if it has none.

    A model's encoders of images, video and sound have blocks, too; slices of layers do not mean them.
    """
    inside = [name for name in names if block_of(name) is not None]
    return [name for name in inside if not _TOWER.search(name[: _begin(name)])] or inside


def of_tower(name: str) -> bool:
    """Return True if a tensor belongs to an encoder of images, video or sound, or to its projector."""
    return _TOWER.search(name) is not None or "multi_modal_projector" in name


def _begin(name: str) -> int:
    """Return the index in a tensor's name at which its block's number begins; 0 if it is in none."""
    match = _BLOCK.search(name)
    return match.start(1) if match else 0


def count(names: Sequence[str]) -> int:
    """Return how many blocks a model with these tensors has: the highest block number plus 1, or 0."""
    return 1 + max((b for name in names if (b := block_of(name)) is not None), default=-1)


def decoder(config: Mapping[str, Any]) -> Mapping[str, object]:
    """Return the part of a config.json about the decoder: `text_config`, or all without such a key."""
    return config.get("text_config") or config


def depth(config: Mapping[str, object]) -> int | None:
    """Return the number of blocks by config.json; None if it has no such key."""
    return next((n for key in COUNT_KEYS if type(n := decoder(config).get(key)) is int), None)


def per_block(config: Mapping[str, object]) -> dict[str, list[object]]:
    """Return key → list of those lists of a config.json that have one entry for each block."""
    count = depth(config)
    return {
        key: value
        for key, value in decoder(config).items()
        if isinstance(value, list)
        and len(value) == count
        and not key.endswith(_OTHER_LISTS)
        and key not in BLOCK_NUMBERS
    }


def with_blocks(
    config: Mapping[str, object], blocks: Sequence[tuple[Mapping[str, object], int]]
) -> dict[str, object]:
    """Return `config` for other blocks, each given as (config.json of its model, its number there).

    Lists with an entry for each block take the entries of those blocks. Lists of block numbers
    (`mlp_only_layers`) take the new numbers. A list is set if `config` or the first block's model
    has it, and left out if one of the models lacks it.
    """
    settings = dict(decoder(config))
    settings |= {key: len(blocks) for key in COUNT_KEYS if key in settings}
    lists = [per_block(model) for model, _ in blocks]
    for key in sorted(set(per_block(config)).union(*lists[:1])):
        settings.pop(key, None)
        if all(key in each for each in lists):
            settings[key] = [each[key][number] for each, (_, number) in zip(lists, blocks, strict=True)]
    for key in BLOCK_NUMBERS:
        if isinstance(settings.get(key), list):
            settings[key] = [
                at for at, (model, number) in enumerate(blocks) if number in _numbers(model, key)
            ]
    if "attention_types" in settings and "attention_layers" in settings:  # GPT-Neo has both
        settings["attention_types"] = [[settings["attention_layers"], 1]]
    return {**config, "text_config": settings} if config.get("text_config") else settings


def _numbers(config: Mapping[str, object], key: str) -> list[int]:
    """Return the list of block numbers at a key of config.json; empty if it has no such list."""
    value = decoder(config).get(key)
    return value if isinstance(value, list) else []


def part_of(name: str) -> str:
    """Return "attention", "mlp" or "rest": the part of a block that a tensor belongs to.

    `post_attention_layernorm` belongs to the rest, because `_` follows `attention` in its name.
    """
    if any(word in name for word in _ATTENTION):
        return "attention"
    return "mlp" if any(word in name for word in _MLP) else "rest"
