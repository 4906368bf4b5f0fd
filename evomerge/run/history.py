"""Places in a run's history, and cutting the history at a place.

Pure. A place is the number of events before it: place 0 is before `submitted`, place 57 after the
57th event. Events are counted from the first, those before a fork included. Events appended
together belong together: a history is cut between appends only, since no run was ever in a state
between them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from events import Envelope
from evomerge.run.events import (
    ChampionChanged,
    Converged,
    DiversityMeasured,
    GenerationCompleted,
    Reseeded,
)
from runs.errors import ConfigError, NotFoundError

#: Types of the events that close a generation, in one append that begins with `diversity_measured`.
CLOSING = frozenset(e.type for e in (GenerationCompleted, ChampionChanged, Converged, Reseeded))


@dataclass(frozen=True)
class Reference:
    """A reference to a history: RUN, RUN@57 (a place) or RUN@g3 (the end of a generation)."""

    run: str
    place: int | None = None
    generation: int | None = None

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Parse a reference that a user typed. Raises ConfigError."""
        run, at, where = text.partition("@")
        found = re.fullmatch(r"(g?)(\d+)", where)
        if not run or (at and not found):
            raise ConfigError(
                f"{text!r} names no place: write RUN, RUN@57 (after event 57) or RUN@g3 (after "
                "generation 3)."
            )
        if found is None:
            return cls(run)
        number = int(found[2])
        return cls(run, generation=number) if found[1] else cls(run, place=number)


def appends(rows: Sequence[Envelope]) -> list[Sequence[Envelope]]:
    """Return the rows in groups, one group for each append."""
    starts = [i for i, row in enumerate(rows) if i == 0 or row.type not in CLOSING]
    return [rows[a:b] for a, b in zip(starts, [*starts[1:], len(rows)], strict=True)]


def at_place(rows: Sequence[Envelope], place: int) -> int:
    """Return the place if the history may be cut there. Raises NotFoundError, ConfigError."""
    if not 0 < place <= len(rows):
        raise NotFoundError(f"there is no event {place}: the history has events 1 to {len(rows)}.")
    if place < len(rows) and rows[place].type in CLOSING:
        start = end = place
        while rows[start].type in CLOSING:
            start -= 1
        while end < len(rows) and rows[end].type in CLOSING:
            end += 1
        raise ConfigError(
            f"event {place} is in the middle of one append, events {start + 1} to {end}, which close "
            f"a generation together: take {start} or {end}."
        )
    return place


def before_close(rows: Sequence[Envelope], generation: int) -> int:
    """Return the place where a generation is measured but not yet closed. Raises NotFoundError."""
    for index, row in enumerate(rows):
        if row.type == DiversityMeasured.type and row.key.split("/")[2:3] == [str(generation)]:
            return index
    raise NotFoundError(_no_generation(rows, generation))


def after_close(rows: Sequence[Envelope], generation: int) -> int:
    """Return the place right after a generation was closed. Raises NotFoundError."""
    index = before_close(rows, generation) + 1
    while index < len(rows) and rows[index].type in CLOSING:
        index += 1
    return index


def cut(rows: Sequence[Envelope], reference: Reference) -> Sequence[Envelope]:
    """Return the history up to the place of a reference. Raises NotFoundError, ConfigError."""
    if reference.generation is not None:
        return rows[: after_close(rows, reference.generation)]
    return rows if reference.place is None else rows[: at_place(rows, reference.place)]


def _no_generation(rows: Sequence[Envelope], generation: int) -> str:
    closed = sum(row.type == GenerationCompleted.type for row in rows)
    if not closed:
        return f"generation {generation} is not complete: no generation is yet."
    return f"generation {generation} is not complete: generations 0 to {closed - 1} are."
