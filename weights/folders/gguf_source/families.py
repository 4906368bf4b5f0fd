"""Families of models: the metadata of a GGUF file converted into config.json of transformers.

Some settings that transformers reads from a config are fixed in llama.cpp's code: periods of sliding
layers, layers without positions, the scale of attention. This module has them. Tensors keep their
shapes; llama.cpp changes their values in three ways, which the conversion undoes:

- query and key rows of the families that llama.cpp rotates in pairs of neighbours;
- Gemma's norms: llama.cpp multiplies by them as they are, and transformers adds 1 first;
- the kernels of LFM2's convolutions, which have another dimension of 1 in transformers.

Rotary positions become `rope_parameters`. llama.cpp multiplies cosines and sines of YaRN by
1 + 0.1 ln(factor) and by `attn_factor`, those of LongRoPE by `attn_factor` alone; transformers has the
product as `attention_factor`. A file stores Llama 3's scaling as the divisors of all frequencies,
`rope_freqs.weight`. The scaling's numbers are guessed from the divisors, and used only if they give the
same divisors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent_forge.weights.folders.gguf_source.header import Metadata, read_vector, shortest

#: Numbers of layers of the largest Gemma 2 and 3, whose attention is scaled by hidden_size / heads.
_BY_HIDDEN = {"gemma2": 46, "gemma3": 62}
#: SmolLM3: every layer of this number has no positions (llama.cpp, `n_no_rope_layer_step`).
_UNROTATED = 4
_BLOCK = re.compile(r"blk\.(\d+)\.")

Settings = dict[str, Any]


@dataclass(frozen=True)
class GgufArchitecture:
    """One architecture of llama.cpp."""

    #: `model_type` of transformers, and its class.
    kind: str
    model: str
    #: True if query and key rows have another order in llama.cpp.
    paired: bool = False
    #: True if norms are stored as their difference from 1 in transformers.
    centred: bool = False
    #: True if a part of each head may be rotated.
    partial: bool = False
    #: Settings that only this family has.
    more: Callable[[Metadata, Settings], Settings] = lambda source, config: {}


def _biases(source: Metadata, config: Settings) -> Settings:
    """Return the settings `attention_bias` and `mlp_bias`, by the tensors of the first block."""
    tensors = source.header.tensors
    return {
        "attention_bias": "blk.0.attn_output.bias" in tensors or "blk.0.attn_q.bias" in tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in tensors,
    }


def _smollm3(source: Metadata, config: Settings) -> Settings:
    layers = [int((i + 1) % _UNROTATED != 0) for i in range(config["num_hidden_layers"])]
    return {"no_rope_layers": layers, "no_rope_layer_interval": _UNROTATED, "use_sliding_window": False}


def _granite(source: Metadata, config: Settings) -> Settings:
    """Return the settings of Granite's multipliers and biases; a multiplier 0 counts as missing."""
    if (
        not source.value("rope.scaling.finetuned")
        and source.value("rope.scaling.finetuned") is not None
    ):
        raise source.error("this Granite has no positions, and transformers would rotate.")
    return _biases(source, config) | {
        "attention_multiplier": source.number("attention.scale", 0.0) or config["head_dim"] ** -0.5,
        "embedding_multiplier": source.number("embedding_scale", 0.0) or 1.0,
        "residual_multiplier": source.number("residual_scale", 0.0) or 1.0,
        "logits_scaling": source.number("logit_scale"),
    }


def _olmo2(source: Metadata, config: Settings) -> Settings:
    if source.integer("attention.sliding_window", 0):
        raise source.error("a window slides over some layers, which OLMo 2 does not have.")
    return {"attention_bias": False}


def _gemma(source: Metadata, config: Settings) -> Settings:
    return {"hidden_activation": "gelu_pytorch_tanh", "attention_bias": False}


def _gemma2(source: Metadata, config: Settings) -> Settings:
    """Return the settings of window, soft caps and attention's scale of Gemma 2 or 3."""
    name, layers = source.architecture, config["num_hidden_layers"]
    second = name == "gemma2"
    by_hidden = layers == _BY_HIDDEN[name]
    period = _period(source, 2 if second else 6)
    caps = (50.0, 30.0) if second else (0.0, 0.0)
    return _gemma(source, config) | {
        "query_pre_attn_scalar": config["hidden_size"] // config["num_attention_heads"]
        if by_hidden
        else config["head_dim"],
        "sliding_window": source.integer("attention.sliding_window", 4096 if second else None),
        "attn_logit_softcapping": source.number("attn_logit_softcapping", caps[0]) or None,
        "final_logit_softcapping": source.number("final_logit_softcapping", caps[1]) or None,
        "layer_types": [
            "sliding_attention" if (i + 1) % period else "full_attention" for i in range(layers)
        ],
    }


def _period(source: Metadata, usual: int) -> int:
    """Return the period N: every N-th layer has full attention. Raises SourceError for 0."""
    period = source.integer("attention.sliding_window_pattern", usual)
    if not period:
        raise source.error("attention.sliding_window_pattern is 0: no layer has full attention.")
    return period


def _gemma3(source: Metadata, config: Settings) -> Settings:
    """Return the settings of `_gemma2`, and the rotary positions of both kinds of layers."""
    base = source.number("rope.freq_base_swa", 1e4)
    return _gemma2(source, config) | {
        "rope_parameters": {
            "full_attention": config["rope_parameters"],
            "sliding_attention": {"rope_type": "default", "rope_theta": base},
        },
        "use_bidirectional_attention": False,
    }


def _phi3(source: Metadata, config: Settings) -> Settings:
    """Return the settings of Phi 3's rotary positions, and no window, because llama.cpp has none."""
    scaling = config["rope_parameters"]
    length = scaling.get("original_max_position_embeddings", config["max_position_embeddings"])
    share = source.integer("rope.dimension_count", config["head_dim"]) / config["head_dim"]
    return {
        "original_max_position_embeddings": length,
        "partial_rotary_factor": share,
        "rope_parameters": {**scaling, "partial_rotary_factor": share},
        "sliding_window": None,
    }


def _lfm2(source: Metadata, config: Settings) -> Settings:
    """Return the settings of LFM2's layers: a layer without key heads is a convolution."""
    heads = source.layers("attention.head_count_kv", config["num_hidden_layers"])
    return {
        "layer_types": ["full_attention" if count else "conv" for count in heads],
        "num_key_value_heads": max(heads),
        "norm_eps": config["rms_norm_eps"],
        "conv_L_cache": source.integer("shortconv.l_cache"),
        "conv_bias": False,
        "block_auto_adjust_ff_dim": False,
        "block_ff_dim": config["intermediate_size"],
    }


#: Architecture of llama.cpp → its family.
FAMILIES = {
    "llama": GgufArchitecture("llama", "LlamaForCausalLM", paired=True, more=_biases),
    "qwen2": GgufArchitecture("qwen2", "Qwen2ForCausalLM"),
    "qwen3": GgufArchitecture("qwen3", "Qwen3ForCausalLM"),
    "smollm3": GgufArchitecture("smollm3", "SmolLM3ForCausalLM", paired=True, more=_smollm3),
    "granite": GgufArchitecture("granite", "GraniteForCausalLM", paired=True, more=_granite),
    "phi3": GgufArchitecture("phi3", "Phi3ForCausalLM", partial=True, more=_phi3),
    "olmo2": GgufArchitecture("olmo2", "Olmo2ForCausalLM", more=_olmo2),
    "lfm2": GgufArchitecture("lfm2", "Lfm2ForCausalLM", more=_lfm2),
    "gemma": GgufArchitecture("gemma", "GemmaForCausalLM", centred=True, more=_gemma),
    "gemma2": GgufArchitecture("gemma2", "Gemma2ForCausalLM", centred=True, more=_gemma2),
    "gemma3": GgufArchitecture("gemma3_text", "Gemma3ForCausalLM", centred=True, more=_gemma3),
}


def of(source: Metadata) -> GgufArchitecture:
    """Return the GgufArchitecture of a file. Raises SourceError for unknown ones and mixtures."""
    family = FAMILIES.get(source.architecture)
    if family is None:
        raise source.error(
            f"a model of the architecture {source.architecture[:60]!r} cannot be read from GGUF: known "
            f"are {', '.join(FAMILIES)}."
        )
    if source.integer("expert_count", 0):
        raise source.error("it is a mixture of experts, which is not read from GGUF.")
    return family


def config(source: Metadata, family: GgufArchitecture, vocabulary: int) -> Settings:
    """Return the content of config.json without the ids of special tokens.

    Raises SourceError for numbers that are missing or do not fit the tensors.
    """
    layers = source.integer("block_count")
    blocks = {int(match[1]) for name in source.header.tensors if (match := _BLOCK.match(name))}
    if not 0 < layers == len(blocks) == max(blocks) + 1:
        raise source.error(f"it announces {layers:,} blocks and has tensors of {len(blocks):,}.")
    hidden, heads = source.integer("embedding_length"), source.integer("attention.head_count")
    width = source.integer("attention.key_length", hidden // max(1, heads))
    if not heads or not width or source.integer("attention.value_length", width) != width:
        raise source.error("its heads have no width, or another for values than for keys.")
    rotated = source.integer("rope.dimension_count", width)
    if not 0 < rotated <= width or rotated % 2 or (rotated != width and not family.partial):
        raise source.error(f"{rotated} of {width} numbers of a head are rotated.")
    settings: Settings = {
        "architectures": [family.model],
        "model_type": family.kind,
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": source.integer("feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": max(source.layers(*_key_heads(source, layers))),
        "head_dim": width,
        "max_position_embeddings": source.integer("context_length"),
        "rms_norm_eps": source.number("attention.layer_norm_rms_epsilon"),
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in source.header.tensors,
        "rope_parameters": parameters(source, rotated),
    }
    if family.centred:
        del settings["hidden_act"]  # `hidden_activation` decides
    return settings | family.more(source, settings)


def _key_heads(source: Metadata, layers: int) -> tuple[str, int]:
    named = "attention.head_count_kv"
    return (named if source.value(named) is not None else "attention.head_count"), layers


DIVISORS = "rope_freqs.weight"
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
#: Tensors that are no weights: their numbers are in config.json.
TENSORS = (DIVISORS, LONG, SHORT)


def parameters(source: Metadata, dimensions: int) -> dict[str, object]:
    """Return a dict, `rope_parameters` of layers with full attention; `dimensions` are rotated.

    Raises SourceError for a scaling that llama.cpp does not have or that lacks a number.
    """
    base = source.number("rope.freq_base", 1e4)
    stated: dict[str, object] = {"rope_type": "default", "rope_theta": base}
    if DIVISORS in source.header.tensors:
        return stated | _divided(source, base, dimensions)
    kind = source.text("rope.scaling.type", "none")
    factor = source.number("rope.scaling.factor", source.number("rope.scale_linear", 1.0))
    if kind == "longrope" or LONG in source.header.tensors:
        return stated | _long(source, dimensions)
    if kind == "yarn":
        return stated | _yarn(source, factor)
    if kind not in ("none", "linear"):
        raise source.error(f"positions are scaled by {kind[:30]!r}, which is not known here.")
    if factor not in (0.0, 1.0):
        stated |= {"rope_type": "linear", "factor": factor}
    return stated


def _yarn(source: Metadata, factor: float) -> dict[str, object]:
    length = source.integer("rope.scaling.original_context_length")
    if factor <= 1 or not length:
        raise source.error(f"YaRN with the factor {factor:g} of {length} positions is none.")
    stated = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": length,
        "beta_fast": source.number("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": source.number("rope.scaling.yarn_beta_slow", 1.0),
    }
    attention = source.number("rope.scaling.attn_factor", 1.0)
    if attention != 1:
        stated["attention_factor"] = attention * (1 + 0.1 * math.log(factor))
    return stated


def _long(source: Metadata, dimensions: int) -> dict[str, object]:
    """Return the `rope_parameters` of LongRoPE; its factors are tensors of the file."""
    length = source.integer("rope.scaling.original_context_length")
    if not length:
        raise source.error("positions are scaled by LongRoPE of no length.")
    return {
        "rope_type": "longrope",
        "long_factor": _vector(source, LONG, dimensions),
        "short_factor": _vector(source, SHORT, dimensions),
        "original_max_position_embeddings": length,
        "attention_factor": source.number("rope.scaling.attn_factor", 1.0),
    }


def _vector(source: Metadata, name: str, dimensions: int) -> list[float]:
    """Return the numbers of the tensor `name`, one a frequency. Raises SourceError unless positive."""
    tensor = source.header.tensors.get(name)
    if tensor is None or tensor.shape != (dimensions // 2,):
        raise source.error(f"{name} is missing, or has not one number for {dimensions // 2}.")
    values = read_vector(tensor)
    if not (np.isfinite(values) & (values > 0)).all():
        raise source.error(f"{name} holds numbers that divide no frequency.")
    return [shortest(value) for value in values]


def _divided(source: Metadata, base: float, dimensions: int) -> dict[str, object]:
    """Return the `rope_parameters` with the file's divisors: Llama 3's, or else LongRoPE's; {} if 1."""
    divisors = _vector(source, DIVISORS, dimensions)
    if all(divisor == 1 for divisor in divisors):
        return {}
    frequencies = base ** -(np.arange(0, dimensions, 2) / dimensions)
    for low, high, length in _guesses(np.array(divisors), frequencies):
        expected = llama3_divisors(frequencies, max(divisors), low, high, length)
        if np.allclose(expected, divisors, rtol=1e-6):
            return {
                "rope_type": "llama3",
                "factor": max(divisors),
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": length,
            }
    return {
        "rope_type": "longrope",
        "long_factor": divisors,
        "short_factor": divisors,
        "original_max_position_embeddings": source.integer("context_length"),
        "attention_factor": 1.0,
    }


def llama3_divisors(
    frequencies: np.ndarray, factor: float, low: float, high: float, length: float
) -> np.ndarray:
    """Return Llama 3's divisors of the frequencies, from 1 (short wavelengths) to `factor` (long).

    The formula is that of transformers (`_compute_llama3_parameters`).
    """
    turns = length * frequencies / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return 1 / ((1 - smooth) / factor + smooth)


def _guesses(divisors: np.ndarray, frequencies: np.ndarray) -> list[tuple[float, float, int]]:
    """Return a list of guesses of (low, high, length): Meta's, and one by a line through the divisors.

    Between the bounds, (1/divisor − 1/factor) / (1 − 1/factor) = (turns − low) / (high − low) is a line
    in the frequency. `low` is 1, because only ratios matter.
    """
    guesses = [(1.0, 4.0, 1 << exponent) for exponent in (13, *range(4, 24))]
    factor = divisors.max()
    between = (divisors > 1 + 1e-6) & (divisors < factor * (1 - 1e-6))
    if between.sum() >= 2:
        smooth = (1 / divisors[between] - 1 / factor) / (1 - 1 / factor)
        slope, offset = np.polyfit(frequencies[between] / (2 * math.pi), smooth, 1)
        if slope > 0 > offset:
            guesses.append((1.0, round(float(1 - 1 / offset), 3), round(float(-slope / offset))))
    return guesses
