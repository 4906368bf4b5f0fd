"""Budgets: what a run has spent, and the budget that ends its search.

Pure; everything follows from the log. Evaluations and items are those of the search and of the
selection slice, the sources' included. Hours are those between `started` and the newest event,
without the time that the run was paused. Device hours are what the tasks recorded as their
duration. Both kinds of hours depend on the machine: of two runs with such a budget, one may go
further than the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from evaluation.data.outcomes import Outcomes
from evomerge.config import EvoMergeConfig
from evomerge.run import events
from runs.record.budget import Spent, device

SECONDS = 3600.0


@dataclass(frozen=True)
class SearchSpent(Spent):
    """The sums of what a merging run has spent, after some prefix of its log."""

    evaluations: int = 0
    #: Windows, questions and problems that were scored.
    items: int = 0

    def minus(self, other: SearchSpent) -> SearchSpent:
        """Return what was spent since the earlier sums `other`."""
        return SearchSpent(
            device=self.device - other.device,
            wall=self.wall - other.wall,
            evaluations=self.evaluations - other.evaluations,
            items=self.items - other.items,
        )


def items(outcomes: Outcomes) -> int:
    """Return how many windows, questions and problems were scored."""
    return sum(len(o.nll) + len(o.right) + len(o.solved) for o in outcomes.values())


def after(spent: SearchSpent, event: object) -> SearchSpent:
    """Return the sums with one more event; the caller adds the time by the clock."""
    spent = replace(spent, device=spent.device + device(event))
    if not isinstance(event, events.Evaluated) or event.slice not in ("search", "selection"):
        return spent
    return replace(
        spent, evaluations=spent.evaluations + 1, items=spent.items + items(event.outcomes)
    )


def exhausted(
    config: EvoMergeConfig, spent: SearchSpent, last: SearchSpent, report: float = 0.0
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
