"""Places in a merging run's history at which generations end. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agent_forge.events import Envelope
from agent_forge.evomerge.run.events import DiversityMeasured, GenerationCompleted
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.history.repository import end_of_append


def before_close(rows: Sequence[Envelope], generation: int) -> int:
    """Return the place where a generation is measured but not yet closed. Raises NotFoundError."""
    for index, row in enumerate(rows):
        if row.type == DiversityMeasured.type and row.key.split("/")[2:3] == [str(generation)]:
            return index
    raise NotFoundError(_no_generation(rows, generation))


def after_close(rows: Sequence[Envelope], generation: int) -> int:
    """Return the place right after a generation was closed. Raises NotFoundError."""
    return end_of_append(rows, before_close(rows, generation))


def _no_generation(rows: Sequence[Envelope], generation: int) -> str:
    closed = sum(row.type == GenerationCompleted.type for row in rows)
    if not closed:
        return f"generation {generation} is not complete: no generation is yet."
    return f"generation {generation} is not complete: generations 0 to {closed - 1} are."
