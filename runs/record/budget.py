"""Spending of a run, from its log. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True)
class Spent:
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
    """Return the time between two recorded times; zero if the clock was set back in between."""
    passed = datetime.fromisoformat(later) - datetime.fromisoformat(earlier)
    return max(passed, timedelta())
