"""Notes in the folder of a snapshot: the runs that it serves, its cost, its end. No torch.

    runs.txt       names of the runs, one a line
    seconds.txt    seconds that it takes to make the snapshot again
    ended          present if none of the runs goes on: the snapshot is the first to be removed

They are about the place of a snapshot, not about its content: notes that are missing do no harm.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from studies.making.making import MakingState
from weights.recipes import Train
from weights.storage.weight_cache import COST, ENDED, SNAPSHOTS

RUNS = "runs.txt"


def note(folder: Path, run: str, seconds: float | None = None) -> None:
    """Note that a living run made or uses a snapshot now, and what it took to make it."""
    with contextlib.suppress(OSError):
        os.utime(folder)
        (folder / ENDED).unlink(missing_ok=True)
        if seconds is not None:
            (folder / COST).write_text(f"{seconds}\n", "utf-8")
        names = runs(folder)
        if run not in names:
            (folder / RUNS).write_text("".join(f"{name}\n" for name in (*names, run)), "utf-8")


def runs(folder: Path) -> list[str]:
    """Return the names of the runs that a snapshot was made or used for; empty if none are noted."""
    try:
        return (folder / RUNS).read_text("utf-8").split()
    except OSError:
        return []


def kept(artifacts: Path) -> set[str]:
    """Return the ids of the recipes that a cache has snapshots of."""
    return {folder.name for folder in artifacts.glob(f"{SNAPSHOTS}/*/*")}


def newest(snapshot_ids: Collection[str], state: MakingState, recipe: Train) -> int:
    """Return the latest recorded step of a training whose snapshot is among `snapshot_ids`, ids; 0: none."""
    events = state.advanced.get(recipe.stem, {}).values()
    return max((event.step for event in events if event.recipe_id in snapshot_ids), default=0)


def noted(artifacts: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield folder and runs of every snapshot of a cache that has a note of its runs."""
    for file in sorted(artifacts.glob(f"{SNAPSHOTS}/*/*/{RUNS}")):
        if names := runs(file.parent):
            yield file.parent, names
