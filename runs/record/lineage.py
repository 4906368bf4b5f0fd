"""Lineage, events without their data, and spending of a run, from its log. Pure.

The lineage is the events, and their data, that a crashed and an undisturbed run must share.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from agent_forge.events import canonical_json
from agent_forge.events.envelope import Data, Json
from agent_forge.runs.record import events
from agent_forge.runs.record.device_setting import AUTO, with_device
from agent_forge.runs.record.events import ENDED

#: Types of the events that luck, places and names decide; the lineage leaves them out.
OUTSIDE = frozenset(
    event.type
    for event in (
        events.PartDone,
        events.MemoryPeaked,
        events.TaskFailed,
        events.TaskDied,
        events.TaskQuarantined,
        events.DivergenceDetected,
        events.Completed,
        events.Forked,
        *events.WISHES,
    )
)

#: Fields of `started` that it leaves out: what was noted, and how long a training's segments are.
UNSHARED = frozenset({"warnings", "segment"})

#: The rules that digests follow, the newest first. 1, by which runs of version 0.2.0 ended: names of
#: models stand in the digest. 2: no name of a run, a model or a folder does. No event says which rule
#: its digest follows: it must follow one of them.
RULES = (2, 1)
NEWEST = RULES[0]


def entry(type_: str, text: str) -> str:
    """Return the SHA-256 of the part of an event's data, JSON `text`, that a seed's runs must share."""
    return digest(shared(type_, json.loads(text)))


def digest(data: object) -> str:
    """Return the SHA-256 of data as canonical JSON, 64 hex digits."""
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()


def shared(type_: str, data: Data, rule: int = NEWEST, device: str = AUTO) -> dict[str, object]:
    """Return the part of an event's data that all runs of this seed must share, by a rule.

    `device` is the one that the run pins; auto if it pins none or has not started.
    """
    if type_ == events.Submitted.type:
        return {"config": with_device(data["config"], device)}
    left = events.LUCK | UNSHARED if type_ == events.Started.type else events.LUCK
    whole = {name: value for name, value in data.items() if name not in left}
    return _nameless(whole) if type_ == events.Started.type and rule > 1 else whole


def _nameless(data: Data) -> dict[str, object]:
    """Return the data of `started` without the names of pinned models."""
    pinned = {"recipe_id", "digest"} <= data.keys() or "source" in data
    members: dict[str, Json] = {k: v for k, v in data.items() if not (pinned and k == "name")}
    return {key: _nameless_member(member) for key, member in members.items()}


def _nameless_member(value: Json) -> object:
    if isinstance(value, list):
        return [_nameless_member(member) for member in value]
    return _nameless(value) if isinstance(value, dict) else value


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


@dataclass(frozen=True)
class SpentTime:
    """Seconds that tasks took, and seconds by the clock, after some prefix of a run's log.

    The clock counts between `started` and the newest event, without the time that the run was
    paused or had ended.
    """

    device: float = 0.0
    wall: float = 0.0


def device(event: object) -> float:
    """Return the seconds that a task took, from the event that answers it; 0 if it has none."""
    return float(getattr(event, "seconds", 0.0))


def elapsed(earlier: str, later: str) -> timedelta:
    """Return the timedelta between two recorded times; zero if a clock was set back in between."""
    passed = datetime.fromisoformat(later) - datetime.fromisoformat(earlier)
    return max(passed, timedelta())
