"""Places of tensors in safetensors files, computed, with each shard's header, before any tensor is.

The format: github.com/huggingface/safetensors, "Format"; see `safetensors_header` for reading.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from agent_forge.weights.folders.checkpoint import INDEX, SINGLE, TORCH
from agent_forge.weights.tensors import Shape, elements

#: Bytes at whose multiples torch begins tensors.
ALIGNED = 64
_NAMES = {dtype: name for name, dtype in TORCH.items()}


@dataclass(frozen=True)
class Place:
    """Place of a tensor: its file, its first byte there and its number of bytes."""

    name: str
    dtype: torch.dtype
    shape: Shape
    file: str
    offset: int
    size: int


def places(
    tensors: Sequence[tuple[str, torch.dtype, Shape]], shard_bytes: int
) -> tuple[list[Place], dict[str, bytes]]:
    """Return (places of the tensors, in the order given, file name → its header's bytes)."""
    shards: list[list[tuple[str, torch.dtype, Shape, int]]] = [[]]
    used = 0
    for name, dtype, shape in tensors:
        size = elements(shape) * dtype.itemsize
        if shards[-1] and used + size > shard_bytes:
            shards.append([])
            used = 0
        shards[-1].append((name, dtype, shape, size))
        used += size
    tensor_places: list[Place] = []
    headers: dict[str, bytes] = {}
    for number, shard in enumerate(shards, start=1):
        file = SINGLE if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        header = _header(shard)
        headers[file] = header
        offset = len(header)
        for name, dtype, shape, size in shard:
            tensor_places.append(Place(name, dtype, shape, file, offset, size))
            offset += size
    return tensor_places, headers


def write(folder: Path, weights: Mapping[str, torch.Tensor], shard_bytes: int) -> None:
    """Write weights into an existing folder: one file, or shards with an index.

    Tensors of wide numbers come first, so that each begins at a multiple of its numbers' bytes.
    """
    order = sorted(weights, key=lambda name: (-weights[name].itemsize, name))
    tensor_places, headers = places(
        [(name, weights[name].dtype, tuple(weights[name].shape)) for name in order], shard_bytes
    )
    for file, header in headers.items():
        with (folder / file).open("xb") as out:
            out.write(header)
            for place in tensor_places:
                if place.file == file and place.size:
                    flat = weights[place.name].contiguous().view(-1)
                    out.write(flat.view(torch.uint8).numpy().data)
    if len(headers) > 1:
        (folder / INDEX).write_text(index_of(tensor_places), "utf-8")


def _header(shard: Sequence[tuple[str, torch.dtype, Shape, int]]) -> bytes:
    """Return the bytes of a file's header: eight bytes of length, then JSON.

    Spaces pad the JSON so that data begins at a multiple of `ALIGNED`. Tensors of most shapes in a
    mapped file are then aligned as torch's own are in memory.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, dtype, shape, size in shard:
        entry = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [offset, offset + size]}
        header[name] = entry
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNED)
    return len(text).to_bytes(8, "little") + text


def index_of(tensor_places: Iterable[Place]) -> str:
    """Return the JSON text of the index of a folder with several shards."""
    there = list(tensor_places)
    where = {place.name: place.file for place in there}
    total = sum(place.size for place in there)
    return json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=2) + "\n"
