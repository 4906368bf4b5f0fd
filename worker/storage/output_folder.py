"""Folders that results go into: found out before the work whether they can be written. No torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from runs.errors import ConfigError, ConflictError, UnavailableError

#: What marks a folder as a champion's, which may be replaced; and one as written by `forge merge`.
MARK, MERGED = "evomerge_recipe.json", "evomerge_merge.json"


def _ours(place: Path) -> bool:
    """Whether a champion or a merge was written there."""
    return any((place / mark).is_file() for mark in (MARK, MERGED))


def check_target(folder: Path, ours: Callable[[Path], bool] = _ours) -> Path:
    """The folder, made absolute, where something may be written; nothing is changed.

    It must be missing, empty, or one of `ours`, by default that of a champion or a merge of before.
    Raises ConfigError, ConflictError, UnavailableError.
    """
    place = folder.resolve()
    if place.exists() and not place.is_dir():
        raise ConfigError(f"the output folder {folder} is a file. Choose another.")
    if place in (Path.cwd(), *Path.cwd().parents):
        raise ConfigError(
            f"the output folder {str(folder)!r} is where you are, or above it. Give a new one's name."
        )
    if place.is_dir() and any(place.iterdir()) and not ours(place):
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
