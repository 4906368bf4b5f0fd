"""Tiny models of many architectures with random weights, as transformers saves them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
import transformers as tr
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

TOKENS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
WIDE = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
SMALL = {**WIDE, **TOKENS, "num_hidden_layers": 2, "max_position_embeddings": 64}
GROUPED = {**SMALL, "num_key_value_heads": 2}
OLD = {"vocab_size": 96, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, **TOKENS}
MIXED = {"num_experts": 4, "num_experts_per_tok": 2}

#: `model_type` → the arguments of its configuration.
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": GROUPED,
    "qwen2": GROUPED,
    "qwen3": {**GROUPED, "head_dim": 8},
    "mistral": GROUPED,
    "phi3": GROUPED,
    "olmo2": GROUPED,
    "granite": GROUPED,
    "smollm3": GROUPED,
    "stablelm": GROUPED,
    "gemma2": {**GROUPED, "head_dim": 8},
    "gemma3_text": {**GROUPED, "head_dim": 8},
    "lfm2": GROUPED,
    "gpt2": OLD,
    "gptj": {**OLD, "rotary_dim": 4},
    "gpt_neox": SMALL,
    "gpt_neo": {
        "vocab_size": 96,
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        **TOKENS,
        "attention_types": [[["global", "local"], 1]],
        "max_position_embeddings": 64,
    },
    "mixtral": {**GROUPED, "num_local_experts": 4},
    "qwen3_moe": {**GROUPED, **MIXED, "head_dim": 8, "moe_intermediate_size": 16},
    "olmoe": {**GROUPED, **MIXED},
    "deepseek_v3": {  # stores a buffer, and mixes dense blocks with mixtures
        **SMALL,
        "num_key_value_heads": 4,
        "n_routed_experts": 4,
        "moe_intermediate_size": 16,
        "n_group": 2,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "q_lora_rank": 8,
        "kv_lora_rank": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "qk_nope_head_dim": 4,
    },
}
#: Kinds whose experts transformers packs when it loads them.
PACKED = ("mixtral", "qwen3_moe", "olmoe", "deepseek_v3")


def save(folder: Path, kind: str, seed: int = 0, **more: Any) -> Path:
    """Save a model of an architecture with random weights; `more` adds to its configuration."""
    config = tr.CONFIG_MAPPING[kind](**{**CONFIGS[kind], **more})
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    model.save_pretrained(folder)
    return folder


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a folder with one file, as stored."""
    return load_file(folder / "model.safetensors")


def store(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    """Write the tensors of a folder with one file."""
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
