"""Places of tensors in safetensors files: known, with the header of each shard, before any tensor is.

The format: github.com/huggingface/safetensors, "Format"; see `safetensors_header` for reading.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from weights.folders.checkpoint import SINGLE, TORCH
from weights.tensors import Shape, elements

_NAMES = {dtype: name for name, dtype in TORCH.items()}


@dataclass(frozen=True)
class Place:
    """Place of a tensor in the files."""

    name: str
    dtype: torch.dtype
    shape: Shape
    file: str
    offset: int
    size: int


def places(
    tensors: Sequence[tuple[str, torch.dtype, Shape]], shard_bytes: int
) -> tuple[list[Place], dict[str, bytes]]:
    """Return the places of tensors, which are in order of name, and the header of each file."""
    shards: list[list[tuple[str, torch.dtype, Shape, int]]] = [[]]
    used = 0
    for name, dtype, shape in tensors:
        size = elements(shape) * dtype.itemsize
        if shards[-1] and used + size > shard_bytes:
            shards.append([])
            used = 0
        shards[-1].append((name, dtype, shape, size))
        used += size
    found: list[Place] = []
    headers: dict[str, bytes] = {}
    for number, shard in enumerate(shards, start=1):
        file = (
            SINGLE if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        )
        header = _header(shard)
        headers[file] = header
        offset = len(header)
        for name, dtype, shape, size in shard:
            found.append(Place(name, dtype, shape, file, offset, size))
            offset += size
    return found, headers


def _header(shard: Sequence[tuple[str, torch.dtype, Shape, int]]) -> bytes:
    """Return a header: eight bytes of length, then JSON.

    The JSON is padded with spaces so that data begins at a multiple of 8.
    """
    told: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, dtype, shape, size in shard:
        entry = {
            "dtype": _NAMES[dtype],
            "shape": list(shape),
            "data_offsets": [offset, offset + size],
        }
        told[name] = entry
        offset += size
    text = json.dumps(told, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def index_of(found: Iterable[Place]) -> str:
    """Return the text of the index that a folder of several shards has."""
    there = list(found)
    where = {place.name: place.file for place in there}
    total = sum(place.size for place in there)
    return json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=2) + "\n"
