"""Types of GGUF file that a model can be written as."""

from __future__ import annotations

from pathlib import Path

from agent_forge.runs.errors import ForgeError
from agent_forge.weights.folders.checkpoint import Checkpoint, open_checkpoint
from agent_forge.weights.formats import gguf_file
from agent_forge.weights.tensors import HEADS
from agent_forge.weights.ternary.quantiser import parts


def fitting(folder: Path) -> list[str]:
    """Return the types that the model in a folder can be written as, in the exporter's order.

    Of ternary types one matrix is read, so that they are offered for ternary weights only. Raises
    SourceError, and ConfigError if the model's architecture has no GGUF files.
    """
    checkpoint = open_checkpoint(folder)
    gguf_file.check(checkpoint, "F16")
    return [type_ for type_ in gguf_file.TYPES if _fits(checkpoint, type_)]


def _fits(checkpoint: Checkpoint, type_: str) -> bool:
    try:
        gguf_file.check(checkpoint, type_)
        if type_ in gguf_file.TERNARY:
            inner = (n for n, (_, shape) in checkpoint.shapes.items() if len(shape) == 2)
            name = next(n for n in inner if n not in HEADS and n not in HEADS.values())
            parts(name, checkpoint.tensors()[name])
    except (ForgeError, StopIteration):
        return False
    return True
