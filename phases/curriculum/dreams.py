"""Dreams: answers that a model gives to tasks that it has passed, to train on later. No torch.

Generative replay with prompts from a program: pseudo-rehearsal (Robins 1995, "Catastrophic forgetting,
rehearsal and pseudorehearsal"). The model answers prompts of its training slice, sampled at temperature
1 by key; what it says is trained on as it is, right or wrong. Streams are kept under their digest, and
sampled again if the cache lacks them.
"""

from __future__ import annotations

from dataclasses import dataclass

from phases.curriculum.events import Dreamed


@dataclass(frozen=True)
class Dream:
    """Task: let a model answer tasks of cells that it has passed."""

    recipe_id: str
    #: Cells, sorted.
    cells: tuple[str, ...]

    @property
    def key(self) -> str:
        """`dream/ID`, where ID is the recipe's: the cells follow from what was measured of it."""
        return f"dream/{self.recipe_id}"


def stream(cell: str, recipe_id: str) -> str:
    """Return the name of the stream of a model's dreams of a cell: "FAMILY/LEVEL/dreams-ID"."""
    return f"{cell}/dreams-{recipe_id[:12]}"


def streams(event: Dreamed) -> dict[str, str]:
    """Return name of a stream → its digest, of what a model dreamt."""
    return {stream(cell, event.recipe_id): dream.digest for cell, dream in event.cells.items()}


def unasked(task: Dream, event: Dreamed, most: int) -> str | None:
    """Return why an event does not answer the task; None if it does. `most` are the items of a cell."""
    if event.recipe_id != task.recipe_id:
        return "another model dreamt than the one that was asked"
    if not set(event.cells) <= set(task.cells):
        return "it dreamt of other tasks than those that were asked for"
    if any(
        not dream.right <= dream.items <= most or not dream.items for dream in event.cells.values()
    ):
        return "it counts other dreams than there can be"
    return None
