"""Data flow space: a path through the blocks of several models, as an ordinary model.

Source: Akiba et al. 2025, "Evolutionary optimization of model merging recipes" (Nature Machine
Intelligence 7), section "Merging in the data flow space". Tokens pass through blocks of any of the
models, in the order of a path. The input of each block is multiplied by a number.

A pre-norm block (its norm first) does not see the length of its input, except through the norm's
epsilon. So to scale the residual stream before a block by W is to divide by W all that is added to
the stream from this block on. The division is folded into the projections that write into the
stream. The child is then an ordinary checkpoint with as many blocks as its path has steps. With
post-norm blocks the factor cannot be folded. Which models allow it is tried on two of their blocks
(`folded_factors.py`), not looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch

from agent_forge.evomerge.config import EvoMergeConfig
from agent_forge.evomerge.merging import folded_factors
from agent_forge.evomerge.recipes.recipe import Flow
from agent_forge.runs.errors import ConfigError
from agent_forge.weights import block_names
from agent_forge.weights.folders import companions, model_config
from agent_forge.weights.folders.checkpoint import Checkpoint
from agent_forge.weights.folders.confrontation import Shapes
from agent_forge.weights.folders.sources import OpenedModels

Weights = Mapping[str, torch.Tensor]


def along(recipe: Flow, names: Sequence[str]) -> Iterator[tuple[str, int, str, float]]:
    """Yield (name, model, name in that model, factor) of each tensor of a model along the path.

    Tensors outside of blocks come first, from model 0; `names` are the tensors of one model. A
    factor other than 1 divides the projections that write into the stream.
    """
    yield from ((name, 0, name, 1.0) for name in names if block_names.block_of(name) is None)
    scale, by_block = 1.0, _by_block(names)
    for at, step in enumerate(recipe.steps):
        scale *= step.scale
        for name in by_block[step.block]:
            folded = scale != 1.0 and folded_factors.writes(name)
            factor = 1.0 / scale if folded else 1.0
            yield block_names.rename(name, at), step.model, name, factor


def origin(recipe: Flow, base: Weights) -> dict[str, torch.Tensor]:
    """Return {name: the base's tensor} along the path, scaled alike: the zero of task vectors."""
    return {
        name: scaled(base[source_name], factor).to(base[source_name].dtype, copy=True)
        for name, _, source_name, factor in along(recipe, list(base))
    }


def scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """Return the tensor times the factor in float32; the tensor itself if the factor is 1."""
    return tensor if factor == 1.0 else tensor.to(torch.float32) * factor


def check(recipe: Flow, count: int) -> None:
    """Raise ConfigError if a step names a model or a block that does not exist."""
    for number, step in enumerate(recipe.steps, start=1):
        if step.model > len(recipe.inputs) or step.block >= count:
            raise ConfigError(
                f"step {number} of the path takes block {step.block} of model {step.model}: there are "
                f"blocks 0 to {count - 1} and models 0 (the merge) to {len(recipe.inputs)}"
            )


def check_architecture(folder: Path, config: Mapping[str, object], shapes: Shapes) -> None:
    """Raise ConfigError if paths cannot be taken through models with this config.json and tensors.

    Blocks must be of one kind, by the config's lists and by the tensors in them, and factors on
    their inputs must fold into their weights. `folder` is the one that messages name.
    """
    for key, entries in block_names.per_block(config).items():
        kinds = sorted({str(entry) for entry in entries})
        if len(kinds) > 1:
            raise ConfigError(
                "setting path_repeats: the blocks of these models are of several kinds "
                f"({key}: {', '.join(kinds)}), and paths mix blocks."
            )
    rows = _by_block(list(shapes))
    kinds = [{block_names.rename(name, 0): shapes[name][1] for name in row} for row in rows]
    for number, kind in enumerate(kinds):
        for name in sorted(set(kind) | set(kinds[0])):
            if kind.get(name) != kinds[0].get(name):
                raise ConfigError(
                    f"setting path_repeats: the blocks of these models have other tensors (block 0 "
                    f"has {name} of shape {_shown(kinds[0].get(name))}, block {number} of "
                    f"{_shown(kind.get(name))}), and paths mix blocks."
                )
    if len(kinds) > 1 and (why := folded_factors.obstacle(folder, config)):
        raise ConfigError(f"setting path_repeats: {why}")


def _shown(shape: Sequence[int] | None) -> str:
    return "none" if shape is None else str([*shape])


def settings_for(weights: Weights, donor: Checkpoint, tied: bool) -> dict[str, object]:
    """Return the config.json (dict) of a merge: the donor's, with what these weights change."""
    config = {k: v for k, v in companions.cleaned(donor.config).items() if k != "torch_dtype"}
    blocks = block_names.count(list(weights))
    if blocks != block_names.count(list(donor.shapes)):
        config = block_names.with_blocks(config, [(config, 0)] * blocks)
    config["tie_word_embeddings"] = tied
    config["dtype"] = str(next(iter(weights.values())).dtype).removeprefix("torch.")
    return config


def _by_block(names: Sequence[str]) -> list[list[str]]:
    blocks: list[list[str]] = [[] for _ in range(block_names.count(names))]
    for name in names:
        number = block_names.block_of(name)
        if number is not None:
            blocks[number].append(name)
    return blocks


def check_paths(family: OpenedModels, config: EvoMergeConfig) -> None:
    """Raise ConfigError if the settings ask for paths that these models do not allow."""
    search = config.search
    if not search.repeats:
        return
    base_config = model_config.load(family.base.folder)
    settings = base_config.to_dict()  # with the defaults that the file leaves out
    check_architecture(family.base.folder, settings, family.base.shapes)
    blocks = int(base_config.get_text_config().num_hidden_layers)
    longest = search.longest_path(blocks)
    if longest < blocks:
        raise ConfigError(
            f"setting path_blocks: the models have {blocks} blocks, and no path could hold them with "
            f"{longest}."
        )
