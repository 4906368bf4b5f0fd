"""Folders of Hugging Face's format `bitnet`, which plain transformers loads: ternary weights, packed.

    NAME.weight        uint8 [rows / 4, columns]: trits, strided (`weights.ternary.packing`)
    NAME.weight_scale  float32 [1]: 1 / s, which BitLinear divides by
    config.json        with `quantization_config`: class `bitlinear`, mode `offline`

The class is `bitlinear`, because `autobitlinear` multiplies the bias by the scale, too, and gives other
numbers for a model with biases, such as Qwen2. `bitlinear` quantises activations to int8, as in the
training. Embedding, head, norms and biases are float32.
"""

from __future__ import annotations

from pathlib import Path

import torch

from agent_forge.runs.errors import ConfigError, NotFiniteError
from agent_forge.weights.folders import companions
from agent_forge.weights.folders.checkpoint import SHARD_BYTES, Checkpoint, write_weights
from agent_forge.weights.folders.model_config import described
from agent_forge.weights.ternary import linears, packing, quantiser

#: The key `quantization_config` of config.json, which tells transformers the format.
QUANTISATION: dict[str, object] = {
    "quant_method": "bitnet",
    "linear_class": "bitlinear",
    "quantization_mode": "offline",
    "modules_to_not_convert": ["lm_head"],
}


def check(checkpoint: Checkpoint) -> list[str]:
    """Return a list of the ternary matrices' names. Raises ConfigError unless 4 divides their rows.

    Raises SourceError for a config that describes no causal language model.
    """
    with described(f"{checkpoint.given}: it cannot be written as a bitnet folder"):
        names = linears.of_config(checkpoint.config)
    for name in names:
        rows = checkpoint.shapes[name][1][0]
        if rows % packing.PER_BYTE:
            raise ConfigError(
                f"{name} has {rows} rows: the bitnet format packs four rows into a byte, so their "
                f"number must be a multiple of {packing.PER_BYTE}."
            )
    return names


def write(checkpoint: Checkpoint, folder: Path) -> None:
    """Write a ternary model into an existing folder, with its tokenizer.

    Raises the errors of `check`, SourceError for a matrix that is not ternary with one scale for the
    tensor, NotFiniteError for NaN or Inf.
    """
    matrices = set(check(checkpoint))
    tied = checkpoint.config.get("tie_word_embeddings")
    packed: dict[str, torch.Tensor] = {}
    for name, tensor in checkpoint.tensors().items():
        if name == "lm_head.weight" and tied:
            continue
        if not tensor.isfinite().all():
            raise NotFiniteError(f"tensor {name} holds NaN or Inf: no folder is written.")
        if name not in matrices:
            packed[name] = tensor.float()
            continue
        trits, scale = quantiser.parts(name, tensor)
        packed[name] = packing.strided(trits)
        packed[f"{name}_scale"] = (1 / scale.clamp(min=quantiser.TINY)).reshape(1)
    write_weights(folder, packed, SHARD_BYTES)
    settings = companions.cleaned(checkpoint.config)
    settings.pop("torch_dtype", None)
    settings |= {"dtype": "float32", "quantization_config": QUANTISATION}
    (folder / companions.CONFIG).write_text(companions.as_text(settings), "utf-8")
    companions.write(checkpoint.folder, folder)


def is_one(folder: Path) -> bool:
    """Return True if a folder's config.json names this format."""
    return companions.quant_method(folder) == "bitnet"
