"""Rotary positions of a GGUF file, as config.json of transformers has them (`rope_parameters`).

llama.cpp multiplies cosines and sines of YaRN by 1 + 0.1 ln(factor) and by `attn_factor`, those of
LongRoPE by `attn_factor` alone; transformers has the product as `attention_factor`. Llama 3's scaling
is in a file as the divisors of all frequencies, `rope_freqs.weight`: its numbers are found again, and
kept only if they give the same divisors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weights.folders.gguf_source.metadata import Metadata, shortest
from weights.folders.gguf_source.values import read_vector

DIVISORS = "rope_freqs.weight"
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
#: Tensors that are no weights: config.json has what they say.
TENSORS = (DIVISORS, LONG, SHORT)


def parameters(source: Metadata, dimensions: int) -> dict[str, Any]:
    """Return `rope_parameters` of layers with full attention; `dimensions` of a head are rotated.

    Raise SourceError for a scaling that llama.cpp does not have or that lacks a number.
    """
    base = source.number("rope.freq_base", 1e4)
    stated: dict[str, Any] = {"rope_type": "default", "rope_theta": base}
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


def _yarn(source: Metadata, factor: float) -> dict[str, Any]:
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


def _long(source: Metadata, dimensions: int) -> dict[str, Any]:
    """Return LongRoPE's factors, which are tensors of the file."""
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
    """Return the factors of all frequencies. Raise SourceError unless all are positive numbers."""
    tensor = source.header.tensors.get(name)
    if tensor is None or tensor.shape != (dimensions // 2,):
        raise source.error(f"{name} is missing, or has not one number for {dimensions // 2}.")
    values = read_vector(tensor)
    if not (np.isfinite(values) & (values > 0)).all():
        raise source.error(f"{name} holds numbers that divide no frequency.")
    return [shortest(value) for value in values]


def _divided(source: Metadata, base: float, dimensions: int) -> dict[str, Any]:
    """Return the scaling whose divisors the file has: Llama 3's, else LongRoPE with these alone."""
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
    """Return Llama 3's divisors: 1 for short wavelengths, `factor` for long ones, between in between.

    The formula is that of transformers (`_compute_llama3_parameters`).
    """
    turns = length * frequencies / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return 1 / ((1 - smooth) / factor + smooth)


def _guesses(divisors: np.ndarray, frequencies: np.ndarray) -> list[tuple[float, float, int]]:
    """Return candidates for (low, high, length): Meta's, and those that two divisors lead to.

    Between the bounds, (1/divisor − 1/factor) / (1 − 1/factor) = (turns − low) / (high − low) is a line
    in the frequency; low is taken as 1, for only ratios matter.
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
