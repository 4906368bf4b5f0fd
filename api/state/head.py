"""Current activity of a run: tasks under way, share done, time left; from heartbeats, not the log.

There is no past of it: a run at an earlier event has no head.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from api.state.run_cache import Desk
from runs import kinds
from runs.kinds import wording
from runs.kinds.budget import elapsed
from runs.kinds.state import State
from runs.lists import queries
from worker.queue import wait_reason
from worker.queue.active_tasks import Hand, at_work


def head(desk: Desk, run: str) -> dict[str, Any]:
    """Return what the run does now, and what it waits for if nothing of it is under way."""
    row = queries.row(desk.store, run)
    with desk.state(run) as state:
        hands = [] if state.ended else at_work(run, desk.roster, desk.leases)
        names = wording.names(state)
        under_way = [(hand.task, hand.seconds or 0.0) for hand in hands]
        kind = kinds.of(state.kind)
        seen = kind.outlook(state, desk.rehearsals.of(state), under_way)
        told = {
            "run": run,
            "status": state.status,
            "place": state.place,
            "done": seen.done,
            "of": seen.of,
            "unit": seen.unit,
            "inside": seen.inside,
            "eta_s": None if state.ended or state.paused else seen.eta_s,
            "elapsed_s": _elapsed(state, row),
        }
        waits = _waits(desk, state, row, hands)
    who = [_hand(kind.name, hand, names) for hand in hands]
    doing = who[0]["doing"] if who else None
    if doing and len(who) > 1:
        doing += f", and {len(who) - 1} more"
    return {**told, "doing": doing, "at_work": who, "waits_for": waits}


def _hand(kind: str, hand: Hand, names: wording.Names) -> dict[str, Any]:
    words = wording.task(kind, hand.task, names) or hand.task
    return {"who": hand.who, "doing": words, "seconds": hand.seconds}


def _waits(desk: Desk, state: State, row: dict[str, Any] | None, hands: list[Hand]) -> str | None:
    """Return what the run waits for, or None if it is worked on or has ended."""
    if state.ended or hands or row is None:
        return None
    return wait_reason.reason(row, desk.roster.devices()) or "a free worker"


def _elapsed(state: State, row: dict[str, Any] | None) -> float | None:
    """Return seconds since the start, pauses left out; before it, since the run was submitted."""
    now = datetime.now(UTC).isoformat()
    if state.started is None:
        return (
            elapsed(row["submitted_at"], now).total_seconds() if row and not state.ended else None
        )
    since = elapsed(state.clock, now).total_seconds() if state.clock and not state.ended else 0.0
    return state.spent.wall + max(0.0, since)
