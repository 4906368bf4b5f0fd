"""Schemas of the answers about checks of a run; see runs.py."""

from __future__ import annotations

from typing import Literal

from api.schemas.runs import Answer


class CheckFinding(Answer):
    """A finding of a check; `place` is the event's place in the history."""

    level: Literal["error", "unchecked", "note"]
    check: str
    message: str
    place: int | None


class Check(Answer):
    """A check of a run's history: `broken` means the history, `wrong` a model or a file."""

    by: str
    at: str
    outcome: Literal["intact", "broken", "wrong", "unchecked"]
    #: Models were made again from nothing and came out equal.
    reproduced: bool
    events: int
    #: Version of the run at the check.
    version: int
    rebuilt: int | None
    checks: list[str]
    errors: int
    findings: list[CheckFinding]


class Checks(Answer):
    """The newest checks of a run, the newest first, and those that must not be forgotten."""

    checks: list[Check]
    #: The newest check that found the history broken; null if none did.
    broken: Check | None
    #: The newest check that made models again and found them equal; null if none did.
    reproduced: Check | None
    #: How the history differs from what the last intact check saw; null if it does not.
    changed: str | None
    running: bool
    #: Why the last check did not end with an outcome.
    error: str | None
