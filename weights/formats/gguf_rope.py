"""Rotary positions of a config in GGUF: numbers in the metadata, and tensors of factors.

llama.cpp computes a scaling from keys (linear, YaRN) or from a tensor that divides each frequency
(Llama 3's, LongRoPE's). `gguf_architectures.py` tells which scalings an architecture has.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import gguf
import numpy as np

from agent_forge.weights.folders.gguf_source.families import llama3_divisors

Config = Mapping[str, Any]
Names = gguf.MODEL_TENSOR

#: `model_type` → the rotary base if a config has none (transformers, `default_theta`).
_BASES = {"gemma3_text": 1e6, "lfm2": 1e6, "smollm3": 2e6}
#: Scaling → the numbers that it needs.
_NEEDED = {
    "linear": ("factor",),
    "yarn": ("factor", "original_max_position_embeddings"),
    "llama3": (*("factor", "low_freq_factor", "high_freq_factor"), "original_max_position_embeddings"),
    "longrope": ("long_factor", "short_factor", "original_max_position_embeddings"),
}


def unfit(config: Config, scalings: Collection[str], partial: bool) -> str | None:
    """Return, in words, a setting of a config's positions that llama.cpp does not compute; else None.

    `scalings` are those of the architecture; with `partial` it may rotate a part of each head.
    """
    full, sliding = parameters(config), _parts(config).get("sliding_attention", {})
    if _scaling(sliding):
        return f"positions of sliding layers that are scaled by {_scaling(sliding)!r}"
    scaling = _scaling(full)
    if scaling and scaling not in scalings:
        return f"positions that are scaled by {scaling!r} for this architecture"
    if lacking := [name for name in _NEEDED.get(scaling, ()) if full.get(name) is None]:
        return f"positions that are scaled by {scaling!r} without {', '.join(lacking)}"
    if full.get("truncate") is False:
        return "YaRN whose range is not rounded to whole dimensions"
    if _share(config, full) != 1 and not partial:
        return "heads of which a part is rotated"
    count = dimensions(config) // 2
    for name in ("long_factor", "short_factor") if scaling == "longrope" else ():
        if len(full[name]) != count:
            return f"{len(full[name])} numbers of {name} (a head has {count} frequencies)"
    return None


def describe(writer: gguf.GGUFWriter, config: Config) -> None:
    """Add base, dimensions and scaling of a config's positions to a file's metadata."""
    full = parameters(config)
    writer.add_rope_dimension_count(dimensions(config))
    writer.add_rope_freq_base(_base(config, full))
    if config["model_type"] == "gemma3_text":
        sliding = _parts(config).get("sliding_attention", {})
        local = sliding.get("rope_theta") or config.get("rope_local_base_freq") or 1e4
        writer.add_rope_freq_base_swa(float(local))
    scaling = _scaling(full)
    if scaling in ("linear", "yarn", "longrope"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(scaling))
    if scaling in ("linear", "yarn"):
        writer.add_rope_scaling_factor(float(full["factor"]))
    if scaling in ("yarn", "longrope"):
        writer.add_rope_scaling_orig_ctx_len(full["original_max_position_embeddings"])
        writer.add_rope_scaling_attn_factors(_attention(config, full, scaling))
    if scaling == "yarn":
        writer.add_rope_scaling_yarn_beta_fast(float(full.get("beta_fast") or 32))
        writer.add_rope_scaling_yarn_beta_slow(float(full.get("beta_slow") or 1))


def tensors(config: Config) -> dict[str, np.ndarray]:
    """Return tensor name in the file → divisors of the frequencies, [dimensions / 2] float32; or {}."""
    full = parameters(config)
    if _scaling(full) == "longrope":
        return {
            _name(Names.ROPE_FACTORS_LONG): np.asarray(full["long_factor"], np.float32),
            _name(Names.ROPE_FACTORS_SHORT): np.asarray(full["short_factor"], np.float32),
        }
    return {_name(Names.ROPE_FREQS): _llama3(config, full)} if _scaling(full) == "llama3" else {}


def parameters(config: Config) -> Config:
    """Return the rope settings of layers with full attention, of a config of transformers 4 or 5."""
    scaling = dict(_parts(config).get("full_attention", {}))
    if (length := config.get("original_max_position_embeddings")) is not None:
        scaling["original_max_position_embeddings"] = length  # as transformers does
    return scaling


def dimensions(config: Config) -> int:
    """Return how many numbers of a head are rotated by its position."""
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return int(width * _share(config, parameters(config)))


def _parts(config: Config) -> dict[str, Config]:
    """Return kind of layer ("full_attention", "sliding_attention") → its rope settings."""
    stated = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kinds = ("full_attention", "sliding_attention")
    return {kind: stated[kind] for kind in kinds if stated.get(kind)} or {"full_attention": stated}


def _scaling(part: Config) -> str:
    """Return the name of the scaling, as "yarn"; "" if there is none."""
    name = part.get("rope_type") or part.get("type") or "default"
    return {"default": "", "su": "longrope"}.get(name, name)


def _share(config: Config, full: Config) -> float:
    return full.get("partial_rotary_factor", config.get("partial_rotary_factor")) or 1.0


def _base(config: Config, full: Config) -> float:
    usual = _BASES.get(config["model_type"], 1e4)
    return float(full.get("rope_theta") or config.get("rope_theta") or usual)


def _attention(config: Config, full: Config, scaling: str) -> float:
    """Return the factor of cosines and sines by which llama.cpp's own factor must be multiplied.

    llama.cpp multiplies by 1 + 0.1 ln(factor) for YaRN only. The defaults are those of transformers and
    of the papers (Peng et al. 2023, arXiv 2309.00071; Ding et al. 2024, 2402.13753).
    """
    length = full["original_max_position_embeddings"]
    if scaling == "longrope":
        factor = full.get("factor") or config["max_position_embeddings"] / length
        usual = math.sqrt(1 + math.log(factor) / math.log(length)) if factor > 1 else 1.0
        return float(full.get("attention_factor") or usual)
    magnitude = _magnitude(full["factor"], 1)
    scales = full.get("mscale"), full.get("mscale_all_dim")
    expected = (
        _magnitude(full["factor"], scales[0]) / _magnitude(full["factor"], scales[1])
        if all(scales)
        else magnitude
    )
    return float((full.get("attention_factor") or expected) / magnitude)


def _magnitude(factor: float, scale: Any) -> float:
    return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0


def _llama3(config: Config, full: Config) -> np.ndarray:
    """Return Llama 3's divisors of a config's frequencies, [dimensions / 2] float32."""
    count = dimensions(config)
    frequencies = _base(config, full) ** -(np.arange(0, count, 2) / count)
    divisors = llama3_divisors(
        frequencies,
        full["factor"],
        full["low_freq_factor"],
        full["high_freq_factor"],
        full["original_max_position_embeddings"],
    )
    return divisors.astype(np.float32)


def _name(tensor: gguf.MODEL_TENSOR) -> str:
    return f"{gguf.TENSOR_NAMES[tensor]}.weight"
