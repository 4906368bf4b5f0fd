"""Current activity of a run: tasks under way, share done, time left; from heartbeats, not the log.

There is no past of it: a run at an earlier event has no head.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from api.state.run_cache import Desk
from runs import kinds
from runs.kinds.state import State
from runs.lists import queries
from runs.panels.head import Live
from runs.record.budget import elapsed
from worker.queue.active_tasks import Hand, at_work
from worker.queue.reporting import activity


def head(desk: Desk, run: str) -> dict[str, Any]:
    """Return what the run does now, and what it waits for if nothing of it is under way."""
    row = queries.row(desk.store, run)
    with desk.state(run) as state:
        hands = _hands(desk, state)
        under_way = [(hand.task, hand.seconds or 0.0) for hand in hands]
        seen = kinds.of(state.kind).outlook(state, desk.rehearsals.of(state), under_way)
        return {
            "run": run,
            "status": state.status,
            "place": state.place,
            "done": seen.done,
            "of": seen.of,
            "unit": seen.unit,
            "inside": seen.inside,
            "eta_s": None if state.ended or state.paused else seen.eta_s,
            "progress": activity.progress(state, seen),
            "elapsed_s": _elapsed(state, row),
            "doing": activity.doing(state, hands),
            "at_work": [
                {"who": h.who, "doing": activity.in_words(state, h), "seconds": h.seconds}
                for h in hands
            ],
            "waits_for": activity.waits_for(state, row, hands, desk.roster.devices()),
        }


def live(desk: Desk, run: str) -> Live | None:
    """Return the same for the head of the run's panels; None if the run has ended."""
    row = queries.row(desk.store, run)
    with desk.state(run) as state:
        found = _hands(desk, state), desk.roster.devices()
        return activity.live(state, row, *found, desk.rehearsals.of(state))


def _hands(desk: Desk, state: State) -> list[Hand]:
    return [] if state.ended else at_work(state.run, desk.roster, desk.leases)


def _elapsed(state: State, row: dict[str, Any] | None) -> float | None:
    """Return seconds since the start, pauses left out; before it, since the run was submitted."""
    now = datetime.now(UTC).isoformat()
    if state.started is None:
        return (
            elapsed(row["submitted_at"], now).total_seconds() if row and not state.ended else None
        )
    since = elapsed(state.clock, now).total_seconds() if state.clock and not state.ended else 0.0
    return state.spent.wall + max(0.0, since)
