"""Frankenmerge: each layer group taken whole from one of the inputs.

The choice is part of the recipe. Standing alone it has one entry per block, then one each for the
embedding, the final norm and the head. Inside a pipeline it has one entry per block, 0 is what the
stages before made, and at most a third of the blocks may be replaced.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from runs.errors import ConfigError

_BLOCK = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")


class Params(BaseModel):
    """Parameters of `frankenmerge`: the input, counted from 0, of each layer group."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: tuple[int, ...]


def block(name: str) -> int | None:
    """The block that a tensor belongs to; None for embedding, final norm and head."""
    match = _BLOCK.search(name)
    return int(match[1]) if match else None


def renamed(name: str, number: int) -> str:
    """The name of a block's tensor in another block."""
    match = _BLOCK.search(name)
    if match is None:
        raise ValueError(f"tensor {name} is in no block")
    return f"{name[: match.start(1)]}{number}{name[match.end(1) :]}"


def blocks(names: Sequence[str]) -> int:
    """How many blocks a model with these tensors has."""
    return 1 + max((b for name in names if (b := block(name)) is not None), default=-1)


def group(name: str, count: int) -> int:
    """Where in `layers` a tensor's entry is: its block, then embedding, final norm, head."""
    own = block(name)
    if own is not None:
        return own
    if "embed" in name or "wte" in name or "wpe" in name:
        return count
    return count + 2 if "lm_head" in name else count + 1


def replaceable(count: int) -> int:
    """How many of `count` blocks a pipeline may replace: at most a third."""
    return count // 3


def check(layers: Sequence[int], count: int, inputs: int, *, whole: bool) -> None:
    """Raise ConfigError where the choice does not fit `count` blocks and `inputs` inputs."""
    expected = count + 3 if whole else count
    if len(layers) != expected:
        raise ConfigError(f"frankenmerge needs {expected} layer entries, the recipe has {layers}")
    last = inputs - 1 if whole else inputs
    if any(not 0 <= choice <= last for choice in layers):
        raise ConfigError(f"frankenmerge's layers {layers} name an input beyond {last}")
