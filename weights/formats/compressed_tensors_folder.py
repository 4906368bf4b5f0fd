"""Folders of the format `compressed-tensors`, pack-quantized, which vLLM and transformers load.

    NAME.weight_packed  int32 [rows, columns · bits / 32]: values + 2^(bits-1), the lowest bits first
    NAME.weight_scale   [rows, columns / group], of the weights' dtype
    NAME.weight_shape   int64 [2]
    config.json         with `quantization_config`: W4A16 or W8A16, symmetric, groups of 128, 64 or 32

Rounding to nearest: the scale of a group is its largest magnitude / (2^(bits-1) - 1/2), rounded to the
dtype; values are weight / scale, rounded and cut to -2^(bits-1) … 2^(bits-1) - 1. All linear layers are
quantised; embedding, head, norms and biases stay as they are.
"""

from __future__ import annotations

from pathlib import Path

import torch

from agent_forge.runs.errors import ConfigError, NotFiniteError, SourceError
from agent_forge.weights.folders import companions
from agent_forge.weights.folders.checkpoint import SHARD_BYTES, Checkpoint, write_weights

#: Name of a type → bits a weight.
TYPES = {"int8": 8, "int4": 4}
#: Sizes of groups that share a scale: the largest that divides every row. vLLM has kernels for these.
GROUPS = (128, 64, 32)
#: `model_type` of architectures whose only linear layers are `…_proj` of blocks, and the head.
KNOWN = ("qwen2", "llama", "mistral", "gemma", "gemma2", "gemma3_text")
#: dtypes of weights that can be quantised.
FLOATS = ("F32", "F16", "BF16")


def check(checkpoint: Checkpoint, type_: str) -> tuple[list[str], int]:
    """Return (names of the matrices to quantise, columns of a group).

    Raises ConfigError or SourceError for a type or a model that cannot be written.
    """
    if type_ not in TYPES:
        raise ConfigError(f"type {type_!r} is not of compressed-tensors: use {' or '.join(TYPES)}.")
    kind = checkpoint.config.get("model_type")
    if kind not in KNOWN:
        raise SourceError(
            f"{checkpoint.given}: a model of type {kind!r} cannot be written as compressed-tensors: "
            f"known are {', '.join(KNOWN)}."
        )
    names = [name for name in checkpoint.shapes if name.endswith("_proj.weight")]
    for name in names:
        if checkpoint.shapes[name][0] not in FLOATS:
            raise SourceError(f"tensor {name} is {checkpoint.shapes[name][0]}, not a float to round.")
    columns = {checkpoint.shapes[name][1][-1]: name for name in names}
    fit = [group for group in GROUPS if all(width % group == 0 for width in columns)]
    if not fit or not names:
        width = next((w for w in columns if w % GROUPS[-1]), 0)
        raise ConfigError(
            f"{checkpoint.given}: rows are cut into groups of {', '.join(map(str, GROUPS))}, and "
            f"{columns.get(width, 'no tensor')} has rows of {width}."
        )
    return names, fit[0]


def write(checkpoint: Checkpoint, folder: Path, type_: str) -> None:
    """Write a model, quantised to `type_`, into an existing folder, with its tokenizer.

    Raises the errors of `check`, and NotFiniteError for NaN or Inf.
    """
    names, group = check(checkpoint, type_)
    bits, chosen = TYPES[type_], frozenset(names)
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in checkpoint.tensors().items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise NotFiniteError(f"tensor {name} holds NaN or Inf: no folder is written.")
        if name not in chosen:
            tensors[name] = tensor
            continue
        values, scale = quantised(tensor, bits, group)
        tensors[f"{name}_packed"] = packed(values, bits)
        tensors[f"{name}_scale"] = scale
        tensors[f"{name}_shape"] = torch.tensor(tensor.shape)
    write_weights(folder, tensors, SHARD_BYTES)
    settings = companions.cleaned(checkpoint.config)
    settings |= {"quantization_config": _described(bits, group)}
    (folder / companions.CONFIG).write_text(companions.as_text(settings), "utf-8")
    companions.write(checkpoint.folder, folder)


def quantised(weights: torch.Tensor, bits: int, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (values int8 [rows, columns], scales [rows, columns / group] of the weights' dtype)."""
    rows, columns = weights.shape
    most = 2 ** (bits - 1)
    groups = weights.float().reshape(rows, columns // group, group)
    scale = (groups.abs().amax(-1) / (most - 0.5)).to(weights.dtype)
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    values = (groups / scale.float()[..., None]).round().clamp(-most, most - 1)
    return values.to(torch.int8).reshape(rows, columns), scale


def packed(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Return int8 values [rows, columns], plus 2^(bits − 1), as int32 [rows, columns · bits / 32]."""
    count = 32 // bits
    shifted = (values.long() + 2 ** (bits - 1)).reshape(len(values), -1, count)
    words = (shifted << (torch.arange(count) * bits)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def is_one(folder: Path) -> bool:
    """Return True if a folder's config.json names this format."""
    return companions.quant_method(folder) == "compressed-tensors"


def _described(bits: int, group: int) -> dict[str, object]:
    """Return the content of `quantization_config` in config.json."""
    weights = {
        "num_bits": bits,
        "type": "int",
        "symmetric": True,
        "strategy": "group",
        "group_size": group,
        "dynamic": False,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": weights,
                "input_activations": None,
                "output_activations": None,
            }
        },
    }
