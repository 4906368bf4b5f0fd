"""Architectures of transformers as llama.cpp has them: which configs, which numbers, which values.

llama.cpp does not take everything from a file. What it takes for granted is checked here, and a config
that means something else is refused: another activation, another period of sliding layers, another
scale of attention. Tensors keep their shapes; two things change in their values:

- Llama's and Mistral's query and key rows are put into the order in which llama.cpp rotates them
  (pairs of neighbours instead of halves);
- Gemma's norms multiply by 1 + weight in transformers and by the weight in llama.cpp, so 1 is added.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np

from runs.errors import SourceError

Config = Mapping[str, Any]

#: Numbers of a config that a file needs. transformers has defaults for some; a file is told no default.
NEEDED = (
    *("hidden_size", "intermediate_size", "max_position_embeddings", "num_attention_heads"),
    *("num_hidden_layers", "rms_norm_eps", "vocab_size"),
)
#: Names of the activation of a gated layer, as configs have them.
_TANH_GELU = ("gelu_pytorch_tanh", "gelu_new")
#: Number of layers → the models of Gemma whose attention llama.cpp scales by hidden_size / heads.
_BY_HIDDEN = {"gemma2": 46, "gemma3_text": 62}


@dataclass(frozen=True)
class Architecture:
    """One `model_type` of transformers."""

    gguf: gguf.MODEL_ARCH
    #: True if query and key rows have another order in llama.cpp.
    paired: bool = False
    #: True if norms are stored as their difference from 1.
    centred: bool = False
    #: Yields what a config has that llama.cpp would compute otherwise.
    unfit: Callable[[Config], str | None] = lambda config: None
    #: Adds numbers that only this architecture has.
    describe: Callable[[gguf.GGUFWriter, Config], None] = lambda writer, config: None


def _unfit_llama(config: Config) -> str | None:
    """Return what of a Qwen2, Llama or Mistral config llama.cpp does not compute."""
    if config.get("hidden_act", "silu") != "silu":
        return f"the activation {config['hidden_act']!r} (it has silu)"
    window = config.get("use_sliding_window")
    if window or (config["model_type"] == "mistral" and config.get("sliding_window")):
        return "a sliding window for this architecture"
    return None


def _unfit_gemma(config: Config) -> str | None:
    """Return what of a Gemma config llama.cpp does not compute."""
    named = config.get("hidden_activation") or config.get("hidden_act") or _TANH_GELU[0]
    legacy = (
        config["model_type"] == "gemma" and named == "gelu"
    )  # transformers reads it as tanh, too
    if named not in _TANH_GELU and not legacy:
        return f"the activation {named!r} (it has gelu_pytorch_tanh)"
    if config.get("attention_bias"):
        return "biases of attention"
    if config.get("use_bidirectional_attention"):
        return "attention in both directions"
    if not config.get("tie_word_embeddings", True):
        return "a head that is not the embedding"
    if config.get("head_dim") is None:
        return "a config without head_dim"
    return None


def _unfit_gemma2(config: Config) -> str | None:
    """Return what of a Gemma 2 or 3 config llama.cpp does not compute."""
    kind, layers, width = config["model_type"], config["num_hidden_layers"], config["head_dim"]
    by_hidden = layers == _BY_HIDDEN[kind]
    scaled = config["hidden_size"] / config["num_attention_heads"] if by_hidden else width
    if config.get("query_pre_attn_scalar", 256) != scaled:
        return (
            f"attention that is scaled by query_pre_attn_scalar {config['query_pre_attn_scalar']} "
            f"(with {layers} layers it scales by {scaled:g})"
        )
    if not config.get("sliding_window"):
        return "this architecture without a sliding window"
    if kind == "gemma3_text" and config.get("attn_logit_softcapping"):
        return "a soft cap of attention for this architecture"
    period = 2 if kind == "gemma2" else 6
    usual = [("sliding" if (i + 1) % period else "full") + "_attention" for i in range(layers)]
    told = config.get("sliding_window_pattern") or config.get("_sliding_window_pattern") or period
    if (config.get("layer_types") or usual) != usual or told != period:
        return (
            f"another order of sliding layers than one full layer after {period - 1} sliding ones"
        )
    return None


def _all_of(*checks: Callable[[Config], str | None]) -> Callable[[Config], str | None]:
    return lambda config: next((why for check in checks if (why := check(config))), None)


def _describe_gemma2(writer: gguf.GGUFWriter, config: Config) -> None:
    """Add window and soft caps; those of Gemma 2 have defaults in transformers."""
    writer.add_sliding_window(config["sliding_window"])
    usual = (50.0, 30.0) if config["model_type"] == "gemma2" else (None, None)
    attention = config.get("attn_logit_softcapping", usual[0])
    final = config.get("final_logit_softcapping", usual[1])
    if attention:
        writer.add_attn_logit_softcapping(attention)
    if final:
        writer.add_final_logit_softcapping(final)


#: `model_type` of a config → its architecture.
ARCHITECTURES = {
    "qwen2": Architecture(gguf.MODEL_ARCH.QWEN2, unfit=_unfit_llama),
    "llama": Architecture(gguf.MODEL_ARCH.LLAMA, paired=True, unfit=_unfit_llama),
    "mistral": Architecture(gguf.MODEL_ARCH.LLAMA, paired=True, unfit=_unfit_llama),
    "gemma": Architecture(gguf.MODEL_ARCH.GEMMA, centred=True, unfit=_unfit_gemma),
    "gemma2": Architecture(
        gguf.MODEL_ARCH.GEMMA2,
        centred=True,
        unfit=_all_of(_unfit_gemma, _unfit_gemma2),
        describe=_describe_gemma2,
    ),
    "gemma3_text": Architecture(
        gguf.MODEL_ARCH.GEMMA3,
        centred=True,
        unfit=_all_of(_unfit_gemma, _unfit_gemma2),
        describe=_describe_gemma2,
    ),
}


def of(config: Config) -> Architecture:
    """Return a config's architecture; it is one of ARCHITECTURES."""
    return ARCHITECTURES[config["model_type"]]


def check(config: Config, given: object) -> None:
    """Raise SourceError for a config that llama.cpp would not compute; `given` is how it is called."""
    kind = config.get("model_type")
    if kind not in ARCHITECTURES:
        raise SourceError(
            f"{given}: a model of type {kind!r} cannot be written as GGUF: known are "
            f"{', '.join(ARCHITECTURES)}."
        )
    if lacking := [name for name in NEEDED if config.get(name) is None]:
        raise SourceError(
            f"{given}: config.json lacks {', '.join(lacking)}, which a GGUF file needs."
        )
    for told in _rope(config):
        if (scaling := told.get("rope_type") or told.get("type")) not in (None, "default"):
            raise SourceError(
                f"{given}: positions are scaled by {scaling!r}; files are written of models with plain "
                "rotary positions only."
            )
    if why := of(config).unfit(config):
        raise SourceError(
            f"{given}: llama.cpp does not have {why}, and would compute something else."
        )


def describe(writer: gguf.GGUFWriter, config: Config, name: str) -> None:
    """Add the architecture's numbers, and what the model is called."""
    heads, kv_heads = _heads(config)
    width = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_name(name)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    bases = _bases(config)
    writer.add_rope_freq_base(bases[0])
    if config["model_type"] == "gemma3_text":
        writer.add_rope_freq_base_swa(bases[1])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    of(config).describe(writer, config)


def tensor_name(config: Config, name: str) -> str:
    """Return a tensor's name in the file. Raises SourceError if it has none."""
    architecture = of(config).gguf
    found = _names(architecture, config["num_hidden_layers"]).get_name(
        name, try_suffixes=(".weight", ".bias")
    )
    if found is None:
        raise SourceError(
            f"tensor {name} has no place in a GGUF file of architecture "
            f"{gguf.MODEL_ARCH_NAMES[architecture]}: is this an adapter, or another architecture?"
        )
    return found


def values(config: Config, name: str, tensor: np.ndarray) -> np.ndarray:
    """Return a tensor as llama.cpp has it: the same shape, float32."""
    architecture = of(config)
    if architecture.centred and name.endswith("norm.weight"):
        return tensor + np.float32(1)
    heads, kv_heads = _heads(config)
    if architecture.paired and "self_attn.q_proj" in name:
        return _paired(tensor, heads)
    if architecture.paired and "self_attn.k_proj" in name:
        return _paired(tensor, kv_heads)
    return tensor


@functools.lru_cache(maxsize=4)
def _names(architecture: gguf.MODEL_ARCH, layers: int) -> gguf.TensorNameMap:
    """Return the package's table of names, whose making takes as long as writing a small file."""
    return gguf.get_tensor_name_map(architecture, layers)


def _rope(config: Config) -> list[Mapping[str, Any]]:
    """Return what is told of rotary positions: once, or for full and for sliding layers."""
    told = config.get("rope_parameters") or config.get("rope_scaling") or {}
    parts = [told[part] for part in ("full_attention", "sliding_attention") if told.get(part)]
    return parts or [told]


def _bases(config: Config) -> tuple[float, float]:
    """Return the rotary base of full and of sliding layers, by a config of transformers 4 or 5."""
    three = config["model_type"] == "gemma3_text"
    told = config.get("rope_parameters") or {}
    full, sliding = told.get("full_attention") or told, told.get("sliding_attention") or {}
    base = full.get("rope_theta") or config.get("rope_theta") or (1e6 if three else 1e4)
    local = sliding.get("rope_theta") or config.get("rope_local_base_freq") or 1e4
    return float(base), float(local)


def _heads(config: Config) -> tuple[int, int]:
    """Return the numbers of query heads and of key heads."""
    heads = config["num_attention_heads"]
    return heads, config.get("num_key_value_heads") or heads


def _paired(rows: np.ndarray, heads: int) -> np.ndarray:
    """Return a query or key projection whose halves of each head alternate row by row.

    transformers rotates row i of a head with row i + width/2, llama.cpp row 2i with row 2i + 1.
    """
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))
