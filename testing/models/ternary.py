"""Folders of ternary models with random weights, and a tokenizer of the toys."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from agent_forge.weights import operations
from agent_forge.weights.folders.checkpoint import SHARD_BYTES, write_weights
from agent_forge.weights.recipes import Transform
from agent_forge.weights.tensors import Tensors


def write(donor: Path, folder: Path, kind: str = "qwen2", **changes: Any) -> Path:
    """Write a model whose linear layers are ternary, 64 wide, with large weights and biases.

    Tokenizer and vocabulary are those of `donor`; `changes` are settings of the config.
    """
    shutil.copytree(donor, folder, dirs_exist_ok=True)
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    base = json.loads((donor / "config.json").read_text())
    told = {
        **{k: base[k] for k in ("vocab_size", "bos_token_id", "eos_token_id")},
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
        "max_position_embeddings": 256,
        "initializer_range": 0.2,
    } | changes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **told))
        with torch.no_grad():
            for name, tensor in module.named_parameters():
                if name.endswith("bias"):
                    tensor.normal_(0, 0.5)
    weights = {name: p.detach().float() for name, p in module.named_parameters()}
    recipe = Transform(operation="ternary-pack@1", inputs={"of": "1" * 64})
    made = operations.apply(
        operations.complete(recipe), {"of": Tensors(module.config.to_dict(), weights)}
    )
    module.config.save_pretrained(folder)
    write_weights(folder, made.weights, SHARD_BYTES)
    return folder
