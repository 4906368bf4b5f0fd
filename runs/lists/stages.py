"""List of the runs that delegate runs, such as pipelines: how their stages stand.

All data come from the run list: no log is folded.

A kind that delegates notes its stages in its row (`Kind.row`), as the JSON of a list:

    name, what     the stage, and the kind of run that it is
    state          how it stands by the parent's events (`runs.panels.stages.Standing`)
    gate, says     the figure of a gate that has stopped it, and why in a sentence; empty if none has
    run            the run that a click opens; None if none is known yet
    seen           what the kind needs to note later events; not shown

A run of a stage that has not ended says more about it than the parent's events: it is looked up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVarTuple

from sqlalchemy import Select, func, literal, or_, select, true

from agent_forge.events import EventStore
from agent_forge.events.projection import catch_up
from agent_forge.runs.lists.projections import RUNS, SPENT, Runs, entry_of
from agent_forge.runs.panels.head import Entry

Types = TypeVarTuple("Types")

#: Status of a stage's run that has not ended → how the stage stands.
_LIVING = {"submitted": "waiting", "paused": "paused", "running": "running"}

#: Names by which the list is sorted → columns.
SORTS = {
    "run": RUNS.c.run,
    "status": RUNS.c.status,
    "owner": RUNS.c.owner,
    "done": RUNS.c.done,
    "quality": RUNS.c.quality,
    "bytes": RUNS.c.bytes,
    "spent": SPENT,
    "updated_at": RUNS.c.updated_at,
}

#: The worst stages first: those that a user may be needed for.
_STOPPED = "gate stopped"


class ListFilters(NamedTuple):
    """Filters and order of the list; without `sort` the newest run is the first."""

    status: str | None = None
    owner: str | None = None
    text: str = ""
    sort: str | None = None
    descending: bool = True


def page(
    store: EventStore, limit: int, before: int = 0, chosen: ListFilters = ListFilters()
) -> tuple[list[Entry], int]:
    """Return (at most `limit` rows of runs that delegate, after the first `before`; number of all).

    Each row has `stages`, a list, and `spent`: its own device seconds and those of its runs. Runs
    without a value come last in a sorted list. Raises ProjectionError.
    """
    catch_up(store, Runs())
    condition = RUNS.c.stages.is_not(None)
    if chosen.status is not None:
        condition &= RUNS.c.status == chosen.status
    if chosen.owner is not None:
        condition &= RUNS.c.owner == chosen.owner
    if chosen.text:
        columns = (RUNS.c.run, RUNS.c.owner, RUNS.c.labels, RUNS.c.parent)
        condition &= or_(*(column.contains(chosen.text, autoescape=True) for column in columns))
    query = _ordered(select(RUNS, SPENT.label("spent")).where(condition), chosen)
    rows = store.database.rows(query.offset(before).limit(limit))
    total = store.database.rows(select(func.count()).select_from(RUNS).where(condition))[0][0]
    return standing(store, (entry_of(row) for row in rows)), int(total)


def _ordered(query: Select[*Types], chosen: ListFilters) -> Select[*Types]:
    if chosen.sort is None:
        return query.order_by(RUNS.c.first.desc())
    column = SORTS[chosen.sort]
    way = column.desc() if chosen.descending else column.asc()
    return query.order_by(column.is_(None), way, RUNS.c.first.desc())


def standing(store: EventStore, rows: Iterable[Entry]) -> list[Entry]:
    """Return the rows with `undecided`, and with `stages` as a list, each as its own runs stand now."""
    entries: list[Entry] = [
        {**row, "undecided": stopped(row) is not None, "stages": json.loads(row["stages"])}
        for row in rows
    ]
    names = [row["run"] for row in entries if row["ended"] is None]
    parts = RUNS.c.part_of.in_(names)
    query = select(RUNS.c.run, RUNS.c.part_of, RUNS.c.status).where(parts).order_by(RUNS.c.first)
    children = store.database.rows(query) if names else ()
    for row in entries:
        statuses = {child.run: child.status for child in children if child.part_of == row["run"]}
        row["stages"] = [_stage(row["run"], n, s, statuses) for n, s in enumerate(row["stages"], 1)]
    return entries


def _stage(parent: str, number: int, noted: Entry, runs: Mapping[str, str]) -> Entry:
    """Return the fields of a stage that are shown; `runs`: each run of the parent → its status.

    A run that has ended counts as running until the parent records its end.
    """
    fields = {name: noted[name] for name in ("name", "what", "state", "gate", "run")}
    for run, status in runs.items():
        ended = status not in _LIVING
        if not run.startswith(f"{parent}.{number}-") or (ended and noted["state"] != "waiting"):
            continue
        state = _LIVING.get(status, "running")
        if noted["state"] == "measuring" and state != "paused":  # the run measures it
            state = "measuring"
        fields |= {"state": state, "run": run}
    return {"number": number, **fields}


def needing(store: EventStore, owner: str | None, limit: int) -> tuple[list[Entry], int]:
    """Return (rows of the runs that have failed, the newest failure first; the number of all).

    Runs that are tasks of others are left out: the other run fails with them. `owner`: only this
    user's runs. `stopped` of a row is the stage that a gate has stopped, None if none has.
    """
    catch_up(store, Runs())
    condition = (RUNS.c.ended == literal("failed")) & RUNS.c.part_of.is_(None)
    condition &= true() if owner is None else RUNS.c.owner == owner
    query = select(RUNS).where(condition).order_by(RUNS.c.updated_at.desc(), RUNS.c.first.desc())
    rows = [entry_of(row) for row in store.database.rows(query.limit(limit))]
    total = store.database.rows(select(func.count()).select_from(RUNS).where(condition))[0][0]
    return [{**row, "stopped": stopped(row)} for row in rows], int(total)


def stopped(row: Entry) -> Entry | None:
    """Return {name, gate, says} of the stage whose gate has stopped a failed run; None without one."""
    stages: list[Entry] = json.loads(row["stages"] or "[]") if row["ended"] == "failed" else []
    matches = (stage for stage in stages if stage["state"] == _STOPPED)
    return next(({name: s[name] for name in ("name", "gate", "says")} for s in matches), None)
