"""Checks of the weights that a folder holds."""

from __future__ import annotations

from pathlib import Path

from runs.errors import ForgeError
from weights.folders.checkpoint import digest, open_checkpoint, untied


def holds(folder: Path, expected: str) -> bool:
    """Return True if a folder is a model whose weights have this digest, as stored or untied."""
    try:
        opened = open_checkpoint(folder)
        tensors = opened.tensors()
        if digest(tensors) == expected:
            return True
        return opened.tied and digest(untied(tensors)) == expected
    except (ForgeError, OSError):
        return False
