"""Quantisers of other libraries, as trials beside our codecs: GGUF's types, HQQ, torchao.

Bytes are those of a file that holds nothing else: levels packed at their bits, scales and zeros in
float16, which they are rounded to before anything is measured. Neither HQQ nor torchao is a
dependency; a library that is missing gives trials that say so:

    pip install --no-deps --target LIBS hqq==0.2.8.post1 torchao==0.18.0 termcolor einops
    PYTHONPATH=LIBS python -m benchmarks.weights.codecs models
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import gguf
import numpy as np
import torch
from gguf.quants import dequantize, quantize

#: A matrix and its gram → bytes, the decoded matrix, seconds to encode and to decode.
Tried = Callable[[torch.Tensor, torch.Tensor], tuple[int, torch.Tensor, float, float]]

#: Types of GGUF that the package quantises.
TYPES = ("Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "MXFP4", "TQ2_0", "TQ1_0")
#: Columns that share a scale.
GROUP = 64


def trials() -> dict[str, Tried | str]:
    """Return name → trial, or why there is none."""
    found: dict[str, Tried | str] = {f"gguf {name}": _gguf(name) for name in TYPES}
    for bits in (8, 4, 3, 2):
        for name, library, trial in (("hqq", "hqq", _hqq), ("torchao intx", "torchao", _torchao)):
            there = find_spec(library) is not None
            said = f"{name} {bits} bit, groups of {GROUP}"
            found[said] = trial(bits) if there else f"{library} is not installed"
    return found


def _gguf(name: str) -> Tried:
    """Return a trial of a type of the package `gguf`."""
    type_ = gguf.GGMLQuantizationType[name]

    def tried(matrix: torch.Tensor, _: torch.Tensor):
        began = time.perf_counter()
        raw = quantize(matrix.numpy(), type_)
        encoded = time.perf_counter()
        found = torch.from_numpy(np.ascontiguousarray(dequantize(raw, type_)))
        return raw.nbytes, found, encoded - began, time.perf_counter() - encoded

    return tried


def _bytes(matrix: torch.Tensor, bits: int, numbers: int) -> int:
    """Return the bytes of packed levels, with 16-bit numbers for each group."""
    groups = matrix.numel() // GROUP
    return -(-matrix.numel() * bits // 8) + 2 * numbers * groups


def _hqq(bits: int) -> Tried:
    """Return a trial of HQQ (Badri and Shaji 2023): a scale and a zero for each group, optimised."""
    from hqq.core.quantize import Quantizer  # pyright: ignore[reportMissingImports]

    def tried(matrix: torch.Tensor, _: torch.Tensor):
        began = time.perf_counter()
        given = {"axis": 1, "device": "cpu", "compute_dtype": torch.float32}
        levels, meta = Quantizer.quantize(matrix, nbits=bits, group_size=GROUP, **given)
        encoded = time.perf_counter()
        meta |= {name: meta[name].half().float() for name in ("scale", "zero")}
        found = Quantizer.dequantize(levels, meta)
        took = encoded - began, time.perf_counter() - encoded
        return _bytes(matrix, bits, 2), found, *took

    return tried


def _torchao(bits: int) -> Tried:
    """Return a trial of torchao's IntxWeightOnlyConfig: symmetric levels, a scale for each group."""
    from torchao.quantization import IntxWeightOnlyConfig, quantize_  # pyright: ignore[reportMissingImports]
    from torchao.quantization.granularity import PerGroup  # pyright: ignore[reportMissingImports]

    def tried(matrix: torch.Tensor, _: torch.Tensor):
        began = time.perf_counter()
        layer = torch.nn.Linear(matrix.shape[1], matrix.shape[0], bias=False)
        layer.weight.data = matrix.clone()
        kind = getattr(torch, f"int{bits}")
        quantize_(layer, IntxWeightOnlyConfig(weight_dtype=kind, granularity=PerGroup(GROUP)))
        encoded = time.perf_counter()
        coded: Any = layer.weight
        assert not coded.zero_point.any()
        scale = coded.scale.half().float().repeat_interleave(GROUP, dim=1)
        found = coded.qdata.float() * scale
        took = encoded - began, time.perf_counter() - encoded
        return _bytes(matrix, bits, 1), found, *took

    return tried
