"""Checks, before any work, that an output folder may be written; without torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, ConflictError, UnavailableError

#: Files that mark the folder of a champion, of a result of `forge merge`, of a trained model.
MARK, MERGED, TRAINED = "evomerge_recipe.json", "evomerge_merge.json", "training.json"


def mark_of(kind: str) -> str:
    """Return the name of the file, a report, that marks a result's folder of this kind: "KIND.json"."""
    return f"{kind}.json"


def _ours(place: Path) -> bool:
    """Return True if the folder holds a result of this program, which may be replaced."""
    marks = (MARK, MERGED, TRAINED, *map(mark_of, kinds.table()))
    return any((place / mark).is_file() for mark in marks)


def check_target(folder: Path, replaceable: Callable[[Path], bool] = _ours) -> Path:
    """Return the folder's absolute path if results may be written there; change nothing.

    The folder must be missing or empty, or `replaceable(folder)` must be True; by default it must hold
    an earlier result. Raises ConfigError, ConflictError, UnavailableError.
    """
    place = folder.resolve()
    if place.exists() and not place.is_dir():
        raise ConfigError(f"the output folder {folder} is a file. Choose another.")
    _check_elsewhere(folder)
    if place.is_dir() and any(place.iterdir()) and not replaceable(place):
        raise ConflictError(
            f"the output folder {folder} holds other things, and would be replaced. Choose another, "
            "or empty it."
        )
    parent = place.parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise UnavailableError(
            f"the output folder cannot be made: {parent} is not writable. Choose another."
        )
    return place


def _check_elsewhere(folder: Path) -> None:
    """Raise ConfigError if the folder is the current one, or above it."""
    if folder.resolve() in (Path.cwd(), *Path.cwd().parents):
        raise ConfigError(
            f"the output folder {str(folder)!r} is where you are, or above it. Give a new one's name."
        )


def check_apart(folder: Path, inputs: Iterable[str]) -> None:
    """Raise ConflictError if writing the folder would replace a model or data that the run reads.

    `inputs` are their absolute paths; other texts are ignored. Raises ConfigError for the current
    folder, and those above it.
    """
    _check_elsewhere(folder)
    place = folder.resolve()
    for source in (text for text in inputs if "\0" not in text):
        path = Path(source)
        if path.is_absolute() and place in (path.resolve(), *path.resolve().parents):
            raise ConflictError(
                f"the output folder {folder} is, or holds, {source}, which the run reads, and would be "
                "replaced. Choose another."
            )
