"""Budgets: what a run has spent, and the budget that ends its search.

Pure; everything follows from the log. Evaluations and items are those of the search and of the
selection slice, the sources' included. Hours are those between `started` and the newest event,
without the time that the run was paused. Device hours are what the tasks recorded as their
duration. Both kinds of hours depend on the machine: of two runs with such a budget, one may go
further than the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from evaluation.data.outcomes import Outcomes
from evomerge.config import EvoMergeConfig
from evomerge.run import events

SECONDS = 3600.0


@dataclass(frozen=True)
class Spent:
    """The sums of what a run has spent, after some prefix of its log."""

    evaluations: int = 0
    #: Windows, questions and problems that were scored.
    items: int = 0
    #: Seconds that tasks took, and seconds by the clock.
    device: float = 0.0
    wall: float = 0.0

    def minus(self, other: Spent) -> Spent:
        """Return what was spent since the earlier sums `other`."""
        return Spent(
            self.evaluations - other.evaluations, self.items - other.items,
            self.device - other.device, self.wall - other.wall,
        )  # fmt: skip


def items(outcomes: Outcomes) -> int:
    """Return how many windows, questions and problems were scored."""
    return sum(len(o.nll) + len(o.right) + len(o.solved) for o in outcomes.values())


def device(event: object) -> float:
    """Return the seconds that a task took, from the event that answers it; 0 if it has none."""
    return float(getattr(event, "seconds", 0.0))


def after(spent: Spent, event: object) -> Spent:
    """Return the sums with one more event; the caller adds the time by the clock."""
    taken = spent.device + device(event)
    if not isinstance(event, events.Evaluated):
        return Spent(spent.evaluations, spent.items, taken, spent.wall)
    searching = event.slice in ("search", "selection")
    return Spent(
        spent.evaluations + searching,
        spent.items + (items(event.outcomes) if searching else 0),
        taken,
        spent.wall,
    )


def elapsed(earlier: str, later: str) -> timedelta:
    """Return the time between two recorded times; zero if the clock was set back in between."""
    passed = datetime.fromisoformat(later) - datetime.fromisoformat(earlier)
    return max(passed, timedelta())


def exhausted(
    config: EvoMergeConfig, spent: Spent, last: Spent, report: float = 0.0
) -> events.Reason | None:
    """Return the budget that another generation like the last would exceed; None if all suffice.

    `report` is the seconds that the final report will take, for `budget_hours`.
    """
    limits: list[tuple[events.Reason, float | None, float]] = [
        ("evaluations", config.max_evaluations, spent.evaluations + last.evaluations),
        ("items", config.max_items, spent.items + last.items),
        ("hours", _seconds(config.max_hours), spent.wall + last.wall),
        ("hours", _seconds(config.budget_hours), spent.wall + last.wall + report),
        ("device_hours", _seconds(config.max_device_hours), spent.device + last.device),
    ]
    return next((name for name, limit, need in limits if limit is not None and need > limit), None)


def _seconds(hours: float | None) -> float | None:
    return None if hours is None else hours * SECONDS
