"""Schemas of events: those of one run with their data, and those of a run and its children without."""

from __future__ import annotations

from pydantic import Field

from api.schemas.runs import Answer, Json


class Event(Answer):
    """An event as recorded."""

    place: int
    position: int
    run: str
    version: int
    type: str
    #: It was appended together with the event before it: no place is between the two.
    inside: bool
    #: The unit of the run that it ends: a generation, a step.
    unit: int | None
    schema_: int = Field(alias="schema")
    actor: str
    recorded_at: str
    gist: str
    data: Json
    key: str
    hash: str


class Events(Answer):
    """A stretch of a run's history."""

    events: list[Event]
    total: int
    next: int | None


class Moment(Answer):
    """An event of a run or of a run that it delegates, without its data."""

    position: int
    #: The run whose event it is, and the event's place in that run's history.
    run: str
    place: int
    type: str
    #: It was appended together with the event before it of the same run.
    inside: bool
    actor: str
    recorded_at: str
    gist: str
    #: The unit of the asked run that it ends.
    unit: int | None


class Moments(Answer):
    """Events of a run and of the runs that it delegates, in the order of the log."""

    moments: list[Moment]
    total: int
    next: int | None
