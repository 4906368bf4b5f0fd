"""Events of a run without their data, and the runs that a run delegates, as views read them. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from runs.record.events import ENDED


class Line(NamedTuple):
    """One event of a run's history, without its data."""

    #: Place in the whole log, and in the run's history.
    position: int
    place: int
    type: str
    #: It was appended together with the event before it.
    inside: bool
    actor: str
    recorded_at: str
    gist: str
    #: The unit of the run that it ends.
    unit: int | None
    #: The task that it answers, or that failed, in words; empty for every other event.
    task: str = ""
    outcome: Literal["", "done", "failed"] = ""
    #: Seconds that the task took, if the event has them.
    seconds: float | None = None


@dataclass(frozen=True)
class Child:
    """A run that is a task of another, at the moment at which the other is seen."""

    #: The task's key in the parent.
    task: str
    #: Its state; views only read it.
    state: Any
    #: Its events until that moment; there is one at least.
    lines: Sequence[Line]
    #: True if it had ended before, and was taken in the place of an equal run.
    reused: bool = False

    @property
    def run(self) -> str:
        """The run's name."""
        return self.state.run

    @property
    def began(self) -> str:
        """When its first event was recorded."""
        return self.lines[0].recorded_at

    @property
    def ended(self) -> str | None:
        """When it ended; None if it has not."""
        if not self.state.ended:
            return None
        ends = (line.recorded_at for line in reversed(self.lines) if line.type in ENDED)
        return next(ends, None)


def place_at(lines: Sequence[Line], position: int) -> int:
    """Return the place that a run was at when the log ended at this position; 0 before its first event.

    Events of one append belong together: a position among them counts as before the append.
    """
    place = bisect_right(lines, position, key=lambda line: line.position)
    while 0 < place < len(lines) and lines[place].inside:
        place -= 1
    return place
