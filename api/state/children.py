"""A run and the runs that it delegates: panels, place in its parent, events, current activity.

Locks are taken from the parent down: no function here is called while the state of a child is held.
Current activity (tasks under way, share done, time left) comes from heartbeats, not from the log, so
a run as it was at an earlier event has none.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from heapq import merge
from itertools import islice

from agent_forge.api.schemas.runs import Json
from agent_forge.api.state.run_cache import RunReader
from agent_forge.events.envelope import Data
from agent_forge.runs import kinds
from agent_forge.runs.history import repository
from agent_forge.runs.kinds import view
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists import queries
from agent_forge.runs.panels.head import Live, Panels
from agent_forge.runs.record.lineage import Child, Line, elapsed
from agent_forge.worker.queue.device_table import at_work, named_devices
from agent_forge.worker.queue.reporting import activity
from agent_forge.worker.queue.reporting.activity import WatchedRun


def overview(desk: RunReader, run: str, at: int | None, upto: int | None) -> tuple[Panels, bool]:
    """Return (head and panels of a run at a moment, True if the moment is now).

    `at` is a place of the run's history, `upto` a position in the log; None for both is now. The runs
    that it delegates are shown as they were at the same position. Raises ConfigError, NotFoundError.
    """
    place = desk.place(run, at, upto)
    with desk.state(run) as state:
        delegates = kinds.of(state.kind).children is not None
        if place is None or (place == state.place and not delegates):
            return _newest(desk, state), True
    if delegates and upto is None:
        assert place
        lines = desk.journals.lines(run)
        upto = lines[place - 1].position if place <= len(lines) else None
    with desk.state(run, place) as state, desk.journals.children(state, upto) as children:
        return _seen(desk, state, children), False


def _newest(desk: RunReader, state: State) -> Panels:
    with desk.journals.children(state) as children:
        versions = tuple((child.run, len(child.lines)) for child in children)
        return desk.seen(state.run, "panels", state, lambda s: _seen(desk, s, children), versions)


def _seen(desk: RunReader, state: State, children: Sequence[Child]) -> Panels:
    row = queries.row(desk.store, state.run)
    curve = json.loads(row["curve"]) if row else ()
    return view.overview(state, curve, children)


def report(desk: RunReader, run: str) -> str:
    """Return a run's report for people as Markdown, as it stands now. Raises NotFoundError."""
    row = queries.row(desk.store, run)
    curve = json.loads(row["curve"]) if row else ()
    with desk.state(run) as state:
        rows = list(repository.history(desk.store, run))
        return view.full_report(desk.store, state, rows, curve)


def pictured(desk: RunReader, run: str) -> Json | None:
    """Return {kind, report} of a completed run with a picture, else None. Raises NotFoundError."""
    id_ = desk.name(run)
    with desk.state(id_) as state:
        kind = kinds.of(state.kind)
        if state.completed is None or type(kind.view).picture is view.View.picture:
            return None
        rows = list(repository.history(desk.store, id_))
        return {"kind": state.kind, "report": kind.view.report(state, rows)}


def part_of(desk: RunReader, run: str) -> Json | None:
    """Return {run, name, stage, previous, next} of the run that a run is a task of; None without one.

    `stage` is the run's own stage there; `previous` and `next` are the runs of the stages beside it.
    """
    parent = desk.journals.parent(run)
    if parent is None:
        return None
    with desk.state(parent) as state, desk.journals.children(state) as children:
        rules = kinds.of(state.kind).children
        stages = () if rules is None else rules.stages(state, children)
        what = {child.run: child.state.kind for child in children}
    for at, stage in enumerate(stages):
        if run in stage.runs:
            first = stage.runs[0]
            other = what[run] if what[run] != what[first] else "earlier run"
            before = next((step.runs[0] for step in reversed(stages[:at]) if step.runs), None)
            after = next((step.runs[0] for step in stages[at + 1 :] if step.runs), None)
            row = queries.row(desk.store, parent)
            return {
                "run": parent,
                "name": row["name"] if row else parent,
                "stage": f"{stage.number} {stage.name}" + ("" if run == first else f", {other}"),
                "previous": before,
                "next": after,
            }
    return None


def moments(desk: RunReader, run: str, after: int, limit: int) -> tuple[list[Json], int]:
    """Return (a page of events of a run and of the runs that it delegates, the number of all).

    The page has at most `limit` events after the position `after`, in the order of the log. Raises
    NotFoundError.
    """
    with desk.state(run) as state, desk.journals.children(state) as children:
        child_lines = [(child.run, child.lines) for child in children if not child.reused]
        every = [(run, desk.journals.lines(run)), *child_lines]
    rows = merge(
        *(_newer(name, lines, after) for name, lines in every), key=lambda row: row[1].position
    )
    events = [_told(name, line, is_own=name == run) for name, line in islice(rows, limit)]
    return events, sum(len(lines) for _, lines in every)


def _newer(run: str, lines: Sequence[Line], after: int) -> Iterator[tuple[str, Line]]:
    """Yield (run, line) for each event of one run behind a position."""
    first = bisect_right(lines, after, key=lambda line: line.position)
    return ((run, line) for line in islice(lines, first, None))


def _told(run: str, line: Line, is_own: bool) -> Json:
    """Return an event as plain data; only the run's own events have a `unit`, of others it is None."""
    names = ("position", "place", "type", "inside", "actor", "recorded_at", "gist")
    fields = {name: getattr(line, name) for name in names}
    return {"run": run, **fields, "unit": line.unit if is_own else None}


def head(desk: RunReader, run: str) -> Json:
    """Return a dict of a run's status, its progress, its tasks under way now, or what it waits for."""
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
                {"who": h.who, "doing": activity.in_words(watched_run.state, h), "seconds": h.seconds}
                for watched_run in (watched, *parts)
                for h in watched_run.hands
            ],
            "waits_for": waits,
            "helps": helps,
            "part": part.model_dump() if part else None,
        }


def live(desk: RunReader, run: str) -> Live | None:
    """Return a run's current activity for the head of its panels; None if the run has ended."""
    with _watched(desk, run) as (watched, parts):
        return activity.live(watched, named_devices(desk.store, desk.roster), parts)


@contextmanager
def _watched(desk: RunReader, run: str) -> Iterator[tuple[WatchedRun, list[WatchedRun]]]:
    """Yield (a run, the runs of its open tasks), each with the devices that work on it now."""
    with desk.state(run) as state, desk.journals.children(state) as children:
        parts = activity.open_parts(state, children)
        yield (_one(desk, state, ""), [_one(desk, child.state, child.task) for child in parts])


def _one(desk: RunReader, state: State, task: str) -> WatchedRun:
    row = queries.row(desk.store, state.run)
    hands = [] if state.ended else at_work(state.run, desk.roster, desk.leases)
    return WatchedRun(state, row, hands, desk.rehearsals.of(state), task)


def _elapsed(state: State, row: Data | None) -> float | None:
    """Return seconds since the start without pauses, or since a run was submitted; None: unknown."""
    now = datetime.now(UTC).isoformat()
    if state.started is None:
        return elapsed(row["submitted_at"], now).total_seconds() if row and not state.ended else None
    since = elapsed(state.clock, now).total_seconds() if state.clock and not state.ended else 0.0
    return state.spent.wall + max(0.0, since)
