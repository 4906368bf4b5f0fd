"""LoRA adapters of toy models, written without a training: random matrices in peft's files."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from agent_forge.weights import randomness
from agent_forge.weights.folders.checkpoint import open_checkpoint

#: Size of random numbers: B A moves a toy's matrices by some per cent.
SIZE = 0.15


def write(
    base: Path,
    folder: Path,
    seed: int,
    rank: int = 4,
    alpha: float = 8,
    modules: Collection[str] = ("q_proj", "down_proj"),
    **config: Any,
) -> Path:
    """Write an adapter of a base as peft does; return its folder."""
    tensors = {}
    for name, (_, shape) in open_checkpoint(base).shapes.items():
        module = name.removesuffix(".weight")
        if module.rpartition(".")[2] in modules and len(shape) == 2:
            for part, sides in (("A", (rank, shape[1])), ("B", (shape[0], rank))):
                drawn = randomness.gaussian(sides[0] * sides[1], "toy-adapter", seed, name, part)
                values = torch.from_numpy(drawn).float().reshape(sides) * SIZE
                tensors[f"base_model.model.{module}.lora_{part}.weight"] = values
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base),
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": sorted(modules),
        **config,
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings), "utf-8")
    return folder
