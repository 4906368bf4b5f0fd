"""Current activity of a run: tasks under way, share done, time left; from heartbeats, not the log.

There is no past of it: a run at an earlier event has no head.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from api.state.run_cache import Desk
from runs.kinds.state import State
from runs.lists import queries
from runs.panels.head import Live
from runs.record.budget import elapsed
from worker.queue.active_tasks import Hand, at_work
from worker.queue.device_table import named_devices
from worker.queue.reporting import activity
from worker.queue.reporting.activity import Watched


def head(desk: Desk, run: str) -> dict[str, Any]:
    """Return what the run does now, and what it waits for if nothing of it is under way."""
    with _watched(desk, run) as (watched, parts):
        state, outlook = watched.state, watched.outlook
        waits, helps = activity.waits_for(watched, named_devices(desk.store, desk.roster), parts)
        part = activity.part(watched, parts)
        return {
            "run": run,
            "status": state.status,
            "place": state.place,
            "done": outlook.done,
            "of": outlook.of,
            "unit": outlook.unit,
            "inside": outlook.inside,
            "eta_s": None if state.ended or state.paused else outlook.eta_s,
            "progress": activity.progress(state, outlook),
            "elapsed_s": _elapsed(state, watched.row),
            "doing": activity.doing(watched, parts),
            "at_work": [
                {
                    "who": h.who,
                    "doing": activity.in_words(watched_run.state, h),
                    "seconds": h.seconds,
                }
                for watched_run in (watched, *parts)
                for h in watched_run.hands
            ],
            "waits_for": waits,
            "helps": helps,
            "part": part.model_dump() if part else None,
        }


def live(desk: Desk, run: str) -> Live | None:
    """Return the same for the head of the run's panels; None if the run has ended."""
    with _watched(desk, run) as (watched, parts):
        return activity.live(watched, named_devices(desk.store, desk.roster), parts)


@contextmanager
def _watched(desk: Desk, run: str) -> Iterator[tuple[Watched, list[Watched]]]:
    """Give a run, and the runs of its open tasks, with the hands that work on them now."""
    with desk.state(run) as state, desk.journals.children(state) as children:
        parts = activity.open_parts(state, children)
        yield (
            _one(desk, state, ""),
            [_one(desk, child.state, child.task) for child in parts],
        )


def _one(desk: Desk, state: State, task: str) -> Watched:
    row, hands = queries.row(desk.store, state.run), _hands(desk, state)
    return Watched(state, row, hands, desk.rehearsals.of(state), task)


def _hands(desk: Desk, state: State) -> list[Hand]:
    return [] if state.ended else at_work(state.run, desk.roster, desk.leases)


def _elapsed(state: State, row: Mapping[str, Any] | None) -> float | None:
    """Return seconds since the start, pauses left out; before it, since the run was submitted."""
    now = datetime.now(UTC).isoformat()
    if state.started is None:
        return (
            elapsed(row["submitted_at"], now).total_seconds() if row and not state.ended else None
        )
    since = elapsed(state.clock, now).total_seconds() if state.clock and not state.ended else 0.0
    return state.spent.wall + max(0.0, since)
