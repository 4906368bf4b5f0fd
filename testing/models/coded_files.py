"""Files of coded weights for tests: each matrix of a model folder by a codec of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from agent_forge.weights.folders import companions
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.formats import coded_file
from agent_forge.weights.formats.coded_file import CodedTensor, WrittenCoded

#: Codecs of matrices, in turn.
CHOICES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("uniform@1", {"step": 0.2}),
    ("rtn@1", {"bits": 3, "group": 8}),
    ("uniform@1", {"step": 1.0, "rows": True}),
    ("ternary@1", {}),
    ("plain@1", {"dtype": "float16"}),
)


def coded(folder: Path, choices: Any = CHOICES) -> Iterator[CodedTensor]:
    """Yield a model's tensors; vectors are plain."""
    chosen = cycle(choices)
    for name, tensor in open_checkpoint(folder).tensors().items():
        codec, params = next(chosen) if tensor.dim() > 1 else ("plain@1", {})
        yield coded_file.code(name, tensor, codec, params)


def write(folder: Path, file: Path, choices: Any = CHOICES, **more: Any) -> WrittenCoded:
    """Write a model folder as a file of coded weights, with its companions."""
    config = open_checkpoint(folder).config
    return coded_file.write(file, coded(folder, choices), config, companions.contents(folder), **more)
