"""Architectures of transformers in GGUF: which configs fit, and their metadata, names and values.

llama.cpp does not read all settings from a file. This module checks the settings that are fixed in
llama.cpp's code, and refuses a config that differs: another activation, another period of sliding
layers, another scale of attention. `gguf_rope.py` has the positions. Some values change:

- query and key rows of the families that llama.cpp rotates in pairs of neighbours are put into that
  order (transformers rotates halves);
- Gemma's norms multiply by 1 + weight in transformers and by the weight in llama.cpp, so 1 is added;
- the kernels of LFM2's convolutions lose their middle dimension, which is 1.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np

from agent_forge.runs.errors import SourceError
from agent_forge.weights.formats import gguf_rope

Config = Mapping[str, Any]

#: Numbers that a config must have, even if transformers has a default for them.
NEEDED = (
    *("hidden_size", "max_position_embeddings", "num_attention_heads", "num_hidden_layers"),
    "vocab_size",
)
#: Further numbers, for every family but LFM2.
_NEEDED_MOST = ("intermediate_size", "rms_norm_eps")
#: Names of a gated layer's activation in configs.
_TANH_GELU = ("gelu_pytorch_tanh", "gelu_new")
#: Number of layers → the models of Gemma whose attention llama.cpp scales by hidden_size / heads.
_BY_HIDDEN = {"gemma2": 46, "gemma3_text": 62}
#: SmolLM3: every layer of this number has no positions (llama.cpp, `n_no_rope_layer_step`).
_UNROTATED = 4
#: Granite: multiplier of a config → the writer's method. llama.cpp takes 0 for "none".
_MULTIPLIERS = {
    "attention_multiplier": "add_attention_scale",
    "embedding_multiplier": "add_embedding_scale",
    "residual_multiplier": "add_residual_scale",
    "logits_scaling": "add_logit_scale",
}

Check = Callable[[Config], str | None]


@dataclass(frozen=True)
class Architecture:
    """One `model_type` of transformers, and its differences in llama.cpp."""

    gguf: gguf.MODEL_ARCH
    #: True if query and key rows have another order in llama.cpp.
    paired: bool = False
    #: True if norms are stored as their difference from 1.
    centred: bool = False
    #: True if the width of a head may differ from hidden_size / heads.
    wide: bool = False
    #: True if llama.cpp has no sliding window for it: the file's context is then the window.
    unslid: bool = False
    #: Scalings of rotary positions that llama.cpp computes.
    scalings: tuple[str, ...] = ("linear", "yarn")
    #: True if a part of each head may be rotated.
    partial: bool = False
    #: Returns the part of a config, in words, that llama.cpp would compute differently; else None.
    unfit: Check = lambda config: None
    #: Adds metadata that only this architecture has.
    describe: Callable[[gguf.GGUFWriter, Config], None] = lambda writer, config: None


def _unfit_silu(config: Config) -> str | None:
    """Return, in words, a setting of a Llama-like config that llama.cpp does not compute; else None."""
    if config.get("hidden_act", "silu") != "silu":
        return f"the activation {config['hidden_act']!r} (it has silu)"
    layers = config.get("layer_types") or ()
    if config.get("use_sliding_window") or "sliding_attention" in layers:
        return "a sliding window for this architecture"
    return None


def _unfit_biased(config: Config) -> str | None:
    biased = config.get("attention_bias") or config.get("mlp_bias")
    return "biases of linear layers for this architecture" if biased else None


def _unfit_smollm3(config: Config) -> str | None:
    """Return, in words, a setting of a SmolLM3 config that llama.cpp does not compute; else None."""
    layers, step = config["num_hidden_layers"], config.get("no_rope_layer_interval", _UNROTATED)
    usual = [int((i + 1) % _UNROTATED != 0) for i in range(layers)]
    stated = config.get("no_rope_layers") or [int((i + 1) % step != 0) for i in range(layers)]
    if stated != usual:
        return f"another order of layers without positions than every layer of number {_UNROTATED}"
    return None


def _unfit_granite(config: Config) -> str | None:
    zero = next((name for name in _MULTIPLIERS if config.get(name) == 0), None)
    return f"{zero} 0, which it takes for 1" if zero else None


def _unfit_olmo2(config: Config) -> str | None:
    return "a head that is the embedding" if config.get("tie_word_embeddings") else None


def _unfit_lfm2(config: Config) -> str | None:
    """Return, in words, a setting of an LFM2 config that llama.cpp does not compute; else None."""
    if config.get("conv_bias"):
        return "biases of convolutions"
    if config.get("norm_eps") is None:
        return "a config without norm_eps"
    if set(lfm2_layers(config)) - {"conv", "full_attention"}:
        return "other layers than conv and full_attention"
    return None


def _unfit_gemma(config: Config) -> str | None:
    """Return, in words, a setting of a Gemma config that llama.cpp does not compute; else None."""
    named = config.get("hidden_activation") or config.get("hidden_act") or _TANH_GELU[0]
    legacy = config["model_type"] == "gemma" and named == "gelu"  # transformers reads it as tanh, too
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
    """Return, in words, a setting of a Gemma 2 or 3 config that llama.cpp does not compute; or None."""
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
    pattern = config.get("sliding_window_pattern") or config.get("_sliding_window_pattern") or period
    if (config.get("layer_types") or usual) != usual or pattern != period:
        return f"another order of sliding layers than one full layer after {period - 1} sliding ones"
    return None


def _all_of(*checks: Check) -> Check:
    return lambda config: next((why for check in checks if (why := check(config))), None)


def _describe_gemma2(writer: gguf.GGUFWriter, config: Config) -> None:
    """Add window and soft caps to a file's metadata; Gemma 2's have defaults in transformers."""
    writer.add_sliding_window(config["sliding_window"])
    usual = (50.0, 30.0) if config["model_type"] == "gemma2" else (None, None)
    attention = config.get("attn_logit_softcapping", usual[0])
    final = config.get("final_logit_softcapping", usual[1])
    if attention:
        writer.add_attn_logit_softcapping(attention)
    if final:
        writer.add_final_logit_softcapping(final)


def _describe_granite(writer: gguf.GGUFWriter, config: Config) -> None:
    """Add the multipliers to a file's metadata; a missing one is 1, as in transformers."""
    for name, method in _MULTIPLIERS.items():
        getattr(writer, method)(float(config.get(name, 1.0)))


def lfm2_layers(config: Config) -> list[str]:
    """Return each layer's kind, "full_attention" or "conv", of an LFM2 config in either form."""
    count = config["num_hidden_layers"]
    attending = config.get("full_attn_idxs")
    indices = range(count) if attending is None else attending
    usual = ["full_attention" if i in indices else "conv" for i in range(count)]
    return list(config.get("layer_types") or usual)


def lfm2_width(config: Config) -> int:
    """Return the width of LFM2's gated layers, after the adjustment that the config asks for."""
    width = config.get("block_ff_dim") or config.get("intermediate_size") or 12288
    if config.get("block_auto_adjust_ff_dim", True):
        width = int(2 * width / 3)
        multiplier, block = (
            config.get("block_ffn_dim_multiplier", 1.0),
            config.get("block_multiple_of", 256),
        )
        width = int((1.0 if multiplier is None else multiplier) * width)
        width = block * -(-width // block)
    return width


def _describe_lfm2(writer: gguf.GGUFWriter, config: Config) -> None:
    writer.add_shortconv_l_cache(config.get("conv_L_cache", 3))


_LONG = ("linear", "yarn", "llama3", "longrope")
_LLAMA = Architecture(gguf.MODEL_ARCH.LLAMA, paired=True, wide=True, scalings=_LONG, unfit=_unfit_silu)
#: `model_type` of a config → its architecture.
ARCHITECTURES = {
    "qwen2": Architecture(gguf.MODEL_ARCH.QWEN2, unfit=_unfit_silu),
    "qwen3": Architecture(gguf.MODEL_ARCH.QWEN3, wide=True, unfit=_all_of(_unfit_silu, _unfit_biased)),
    "llama": _LLAMA,
    "mistral": dataclasses.replace(_LLAMA, unslid=True),
    "smollm3": Architecture(
        gguf.MODEL_ARCH.SMOLLM3, paired=True, unfit=_all_of(_unfit_silu, _unfit_biased, _unfit_smollm3)
    ),
    "granite": Architecture(
        gguf.MODEL_ARCH.GRANITE,
        paired=True,
        scalings=_LONG,
        unfit=_all_of(_unfit_silu, _unfit_granite),
        describe=_describe_granite,
    ),
    "phi3": Architecture(
        gguf.MODEL_ARCH.PHI3, scalings=("longrope",), partial=True, unslid=True, unfit=_unfit_silu
    ),
    "olmo2": Architecture(
        gguf.MODEL_ARCH.OLMO2, unfit=_all_of(_unfit_silu, _unfit_biased, _unfit_olmo2)
    ),
    "lfm2": Architecture(gguf.MODEL_ARCH.LFM2, unfit=_unfit_lfm2, describe=_describe_lfm2),
    "gemma": Architecture(
        gguf.MODEL_ARCH.GEMMA, centred=True, wide=True, scalings=(), unfit=_unfit_gemma
    ),
    "gemma2": Architecture(
        gguf.MODEL_ARCH.GEMMA2,
        centred=True,
        wide=True,
        scalings=(),
        unfit=_all_of(_unfit_gemma, _unfit_gemma2),
        describe=_describe_gemma2,
    ),
    "gemma3_text": Architecture(
        gguf.MODEL_ARCH.GEMMA3,
        centred=True,
        wide=True,
        scalings=("linear",),
        unfit=_all_of(_unfit_gemma, _unfit_gemma2),
        describe=_describe_gemma2,
    ),
}


def of(config: Config) -> Architecture:
    """Return the Architecture in ARCHITECTURES for a config that `check` accepts."""
    return ARCHITECTURES[config["model_type"]]


def check(config: Config, label: object) -> None:
    """Raise SourceError, "LABEL: …", for a config that llama.cpp would compute differently."""
    kind = config.get("model_type")
    if kind not in ARCHITECTURES:
        raise SourceError(
            f"{label}: a model of type {kind!r} cannot be written as GGUF: known are "
            f"{', '.join(ARCHITECTURES)}."
        )
    needed = NEEDED if kind == "lfm2" else NEEDED + _NEEDED_MOST
    if lacking := [name for name in needed if config.get(name) is None]:
        raise SourceError(f"{label}: config.json lacks {', '.join(lacking)}, which a GGUF file needs.")
    architecture = of(config)
    if why := (
        gguf_rope.unfit(config, architecture.scalings, architecture.partial)
        or _unfit_width(config, architecture)
        or architecture.unfit(config)
    ):
        raise SourceError(f"{label}: llama.cpp does not have {why}, and would compute something else.")


def _unfit_width(config: Config, architecture: Architecture) -> str | None:
    usual = config["hidden_size"] // config["num_attention_heads"]
    if architecture.wide or config.get("head_dim") in (None, usual):
        return None
    return f"head_dim {config['head_dim']} for this architecture (it has hidden_size / heads)"


def context(config: Config) -> int:
    """Return the file's context length in tokens: the model's, or its window if llama.cpp has none."""
    window = config.get("sliding_window") if of(config).unslid else None
    return min(config["max_position_embeddings"], window or config["max_position_embeddings"])


def notes(config: Config) -> tuple[str, ...]:
    """Return sentences about differences between file and model; () if there are none."""
    length = context(config)
    if length == config["max_position_embeddings"]:
        return ()
    return (
        f"llama.cpp does not slide the window of this architecture: the context of the file ends with "
        f"the window, at {length} tokens.",
    )


def describe(writer: gguf.GGUFWriter, config: Config, name: str) -> None:
    """Add the model's name and the architecture's numbers to a file's metadata."""
    heads, kv_heads = _heads(config)
    width = config.get("head_dim") or config["hidden_size"] // heads
    recurrent = config["model_type"] == "lfm2"
    writer.add_name(name)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(context(config))
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(lfm2_width(config) if recurrent else config["intermediate_size"])
    writer.add_head_count(heads)
    layers = lfm2_layers(config) if recurrent else []
    writer.add_head_count_kv(
        [kv_heads if kind == "full_attention" else 0 for kind in layers] or kv_heads
    )
    writer.add_key_length(width)
    writer.add_value_length(width)
    gguf_rope.describe(writer, config)
    writer.add_layer_norm_rms_eps(config["norm_eps" if recurrent else "rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    of(config).describe(writer, config)


def tensor_name(config: Config, name: str) -> str:
    """Return a tensor's name in the file. Raises SourceError if it has none."""
    architecture = of(config).gguf
    gguf_name = _names(architecture, config["num_hidden_layers"]).get_name(
        name, try_suffixes=(".weight", ".bias")
    )
    if gguf_name is None:
        raise SourceError(
            f"tensor {name} has no place in a GGUF file of architecture "
            f"{gguf.MODEL_ARCH_NAMES[architecture]}: is this an adapter, or another architecture?"
        )
    return gguf_name


def shape(name: str, stored: tuple[int, ...]) -> tuple[int, ...]:
    """Return a tensor's shape in the GGUF file; only kernels of convolutions change."""
    return (stored[0], stored[-1]) if _is_kernel(name) else stored


def is_exact(name: str, stored: tuple[int, ...]) -> bool:
    """Return True if a tensor is always F32: a vector, or the kernels of a convolution."""
    return len(stored) < 2 or _is_kernel(name)


def _is_kernel(name: str) -> bool:
    return name.endswith(".conv.conv.weight")


def values(config: Config, name: str, tensor: np.ndarray) -> np.ndarray:
    """Return a tensor's values, float32, in the order and the shape that llama.cpp has them in."""
    architecture = of(config)
    if architecture.centred and name.endswith("norm.weight"):
        return tensor + np.float32(1)
    heads, kv_heads = _heads(config)
    if architecture.paired and "self_attn.q_proj" in name:
        return _paired(tensor, heads)
    if architecture.paired and "self_attn.k_proj" in name:
        return _paired(tensor, kv_heads)
    return tensor.reshape(shape(name, tensor.shape))


@functools.lru_cache(maxsize=4)
def _names(architecture: gguf.MODEL_ARCH, layers: int) -> gguf.TensorNameMap:
    """Return the package's table of tensor names, cached because it is slow to make."""
    return gguf.get_tensor_name_map(architecture, layers)


def _heads(config: Config) -> tuple[int, int]:
    """Return (number of query heads, number of key heads)."""
    heads = config["num_attention_heads"]
    return heads, config.get("num_key_value_heads") or heads


def _paired(rows: np.ndarray, heads: int) -> np.ndarray:
    """Return a query or key projection with each head's rows in the order of llama.cpp.

    transformers rotates row i of a head with row i + width/2, llama.cpp row 2i with row 2i + 1.
    """
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))
