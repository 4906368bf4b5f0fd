"""Places in a run's history, and cutting the history at a place.

Pure. A place is the number of events before it: place 0 is before `submitted`, place 57 after the
57th event. Events are counted from the first, those before a fork included. Events appended
together belong together: a history is cut between appends only, since no run was ever in a state
between them. The second and later events of an append name its first event as their cause.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from events import Envelope
from runs import kinds
from runs.errors import ConfigError, NotFoundError


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
        match = re.fullmatch(r"(g?)(\d+)", where)
        if not run or (at and not match):
            raise ConfigError(
                f"{text!r} names no place: write RUN, RUN@57 (after event 57) or RUN@g3 (after "
                "generation 3)."
            )
        if match is None:
            return cls(run)
        number = int(match[2])
        return cls(run, generation=number) if match[1] else cls(run, place=number)


#: Events whose cause is in another stream: no append begins with anything else that has a cause.
_ALONE = ("submitted",)


def inside(row: Envelope) -> bool:
    """Return True if the row was appended together with the row before it."""
    return row.causation is not None and row.type not in _ALONE


def end_of_append(rows: Sequence[Envelope], index: int) -> int:
    """Return the index after the append that begins with the row at `index`."""
    first = rows[index].event_id
    index += 1
    while index < len(rows) and rows[index].causation == first:
        index += 1
    return index


def appends(rows: Sequence[Envelope]) -> list[Sequence[Envelope]]:
    """Return the rows in groups, one group for each append."""
    groups, start = [], 0
    while start < len(rows):
        end = end_of_append(rows, start)
        groups.append(rows[start:end])
        start = end
    return groups


def at_place(rows: Sequence[Envelope], place: int) -> int:
    """Return the place if the history may be cut there. Raises NotFoundError, ConfigError."""
    if not 0 < place <= len(rows):
        raise NotFoundError(f"there is no event {place}: the history has events 1 to {len(rows)}.")
    start = place - 1
    cause = rows[start].causation
    if cause is not None:
        start = next((i for i, row in enumerate(rows[:place]) if row.event_id == cause), start)
    end = end_of_append(rows, start)
    if place < end:
        raise ConfigError(
            f"event {place} is in the middle of one append, events {start + 1} to {end}, which "
            f"belong together: take {start} or {end}."
        )
    return place


def cut(rows: Sequence[Envelope], reference: Reference) -> Sequence[Envelope]:
    """Return the history up to the place of a reference. Raises NotFoundError, ConfigError."""
    if reference.generation is not None and rows:
        kind = kinds.kind_of(rows[0].stream)
        assert kind
        return rows[: kind.end_of(rows, reference.generation)]
    return rows if reference.place is None else rows[: at_place(rows, reference.place)]
