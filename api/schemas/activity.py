"""Schemas of what a run does now; see runs.py."""

from __future__ import annotations

from api.schemas.runs import Answer, Status
from runs.panels.head import OpenPart


class AtWork(Answer):
    """A device or process, and the task that it has in hand, in words."""

    who: str
    doing: str
    seconds: float | None


class Activity(Answer):
    """Current activity of a run, from leases and heartbeats. The log has none of it."""

    run: str
    status: Status
    place: int
    doing: str | None
    at_work: list[AtWork]
    waits_for: str | None
    #: The command that ends the wait, if there is one.
    helps: str | None
    #: The run that works for it, or waits, if its tasks are runs.
    part: OpenPart | None
    done: int
    of: int | None
    #: What `done` and `of` count: tasks, or a kind's units.
    unit: str
    inside: float | None
    eta_s: float | None
    #: Share, units and time left in words.
    progress: str
    elapsed_s: float | None
