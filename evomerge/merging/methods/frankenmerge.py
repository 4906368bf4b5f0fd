"""Frankenmerge: each layer group taken whole from one of the inputs.

The choice is part of the recipe. Alone, a frankenmerge has one entry for each block, then one each
for the embedding, the final norm and the head. Inside a pipeline it has one entry for each block, 0
is the result of the stages before, and at most a third of the blocks may be replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Parameters

Group = TypeVar("Group")


class Params(Parameters):
    """Parameters of `frankenmerge`: the input, counted from 0, of each layer group."""

    layers: tuple[int, ...]


def reference(models: Sequence[Sequence[Group]], params: Params) -> list[Group]:
    """Return layer group g of model `layers[g]`, for each g; a model is a list of layer groups."""
    return [models[choice][group] for group, choice in enumerate(params.layers)]


def check(layers: Sequence[int], count: int, inputs: int, *, whole: bool) -> None:
    """Raise ConfigError unless `layers` has `count` entries (`whole`: + 3), none beyond the inputs."""
    expected = count + 3 if whole else count
    if len(layers) != expected:
        raise ConfigError(f"frankenmerge needs {expected} layer entries, the recipe has {layers}")
    last = inputs - 1 if whole else inputs
    if any(not 0 <= choice <= last for choice in layers):
        raise ConfigError(f"frankenmerge's layers {layers} name an input beyond {last}")
