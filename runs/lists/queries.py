"""Queries of the run list, which catches up with the log before each query."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement, Row, Select, func, literal, or_, select, true

from agent_forge.events import EventsError, EventStore, projection
from agent_forge.events.projection import catch_up
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.lists.projections import RUNS, SPENT, RunNames, Runs, Types, entry_of
from agent_forge.runs.panels.head import Entry

#: Columns of a row, with the seconds of the runs that it delegates.
WHOLE = (RUNS, SPENT.label("spent"))
#: Columns that only the projection reads.
_INTERNAL = frozenset({"stem", "number", "named"})


def _told(row: Row[*Types]) -> Entry:
    """Return a row of the run list as a dictionary, with its kind's words for units and curve.

    `done` and `result` have the names of a merging run: `generation`, `champion`. Device seconds are
    those of the run and of the runs that it delegates.
    """
    values = {name: value for name, value in entry_of(row).items() if name not in _INTERNAL}
    values["device_seconds"] = values.pop("spent")
    values |= {"generation": values.pop("done"), "champion": values.pop("result")}
    kind = kinds.of(values["kind"])
    return {**values, "done_unit": kind.unit, "curve_of": kind.curve_of}


#: What users have said about a run.
_WORDS = (RUNS.c.name, RUNS.c.note, RUNS.c.tags)

#: Names by which runs are sorted → columns of the run list.
SORTS = {
    "run": RUNS.c.name,
    "kind": RUNS.c.kind,
    "status": RUNS.c.status,
    "owner": RUNS.c.owner,
    "value": RUNS.c.value,
    "done": RUNS.c.done,
    "device_seconds": SPENT,
    "updated_at": RUNS.c.updated_at,
}


def page(
    store: EventStore,
    limit: int | None,
    before: int | None = None,
    status: str | None = None,
    owner: str | None = None,
    label: str | None = None,
    tag: str | None = None,
    text: str = "",
    kind: str | None = None,
    sort: str | None = None,
    descending: bool = True,
    parts: bool = True,
) -> tuple[list[Entry], int]:
    """Return (rows of the newest matches before the cursor `before`, the number of all matches).

    `first` of the last row is the cursor of the next page. Sorted by one of `SORTS`, a page begins
    after as many rows as `before` says; runs without a value come last. Without `parts`, runs that
    another run has asked for are left out. Raises ProjectionError, and ConfigError if runs of all
    kinds are to be sorted by the values of their results.
    """
    if sort == "value" and kind is None:
        raise ConfigError(
            "results of different kinds of runs have different metrics: choose one kind to sort by "
            "`value`, as `kind=evomerge`."
        )
    catch_up(store, Runs())
    condition = _wanted(status, owner, label, tag, text, kind, parts)
    if sort is None:
        older = condition if before is None else condition & (RUNS.c.first < before)
        query = select(*WHOLE).where(older).order_by(RUNS.c.first.desc()).limit(limit)
    else:
        column = SORTS[sort]
        way = column.desc() if descending else column.asc()
        # Values of one metric on one slice stand together: those of the test slice first.
        alike = (RUNS.c.measured_on.desc(), RUNS.c.unit) if sort == "value" else ()
        order = (column.is_(None), *alike, way, RUNS.c.first.desc())
        query = select(*WHOLE).where(condition).order_by(*order)
        query = query.offset(before or 0).limit(limit)
    rows = [_told(row) for row in store.database.rows(query)]
    total = store.database.rows(select(func.count()).select_from(RUNS).where(condition))[0][0]
    return rows, int(total)


def _wanted(
    status: str | None,
    owner: str | None,
    label: str | None,
    tag: str | None,
    text: str,
    kind: str | None,
    parts: bool,
) -> ColumnElement[bool]:
    """Return the SQL condition of the filters that `page` takes."""
    condition: ColumnElement[bool] = true()
    if not parts:
        condition &= RUNS.c.part_of.is_(None)
    if status is not None:
        condition &= RUNS.c.status == status
    if kind is not None:
        condition &= RUNS.c.kind == kind
    if owner is not None:
        condition &= RUNS.c.owner == owner
    if label is not None:
        condition &= (literal(" ") + RUNS.c.labels + " ").contains(f" {label} ", autoescape=True)
    if tag is not None:
        condition &= (literal(" ") + RUNS.c.tags + " ").contains(f" {tag} ", autoescape=True)
    if text:
        columns = (*_WORDS, RUNS.c.run, RUNS.c.owner, RUNS.c.labels, RUNS.c.parent)
        condition &= or_(*(column.contains(text, autoescape=True) for column in columns))
    return condition


def newest(store: EventStore) -> dict[str, Entry]:
    """Return kind → row of the newest run of that kind. Raises ProjectionError."""
    catch_up(store, Runs())
    last = select(func.max(RUNS.c.first)).group_by(RUNS.c.kind)
    rows = store.database.rows(select(*WHOLE).where(RUNS.c.first.in_(last)))
    return {row.kind: _told(row) for row in rows}


def row(store: EventStore, run: str) -> Entry | None:
    """Return a run's row of the run list; None if the run is missing."""
    catch_up(store, Runs())
    rows = store.database.rows(select(*WHOLE).where(RUNS.c.run == run))
    return _told(rows[0]) if rows else None


def named(store: EventStore, name: str) -> str | None:
    """Return the id of the run with this name; None if there is none."""
    catch_up(store, Runs())
    rows = store.database.rows(select(RUNS.c.run).where(RUNS.c.name == name))
    return rows[0].run if rows else None


def measured(store: EventStore, ids: Collection[str]) -> dict[str, float]:
    """Return result id → bits per byte on the test slice, of the newest run with that result."""
    catch_up(store, Runs())
    scale = (RUNS.c.metric == "bits per byte") & (RUNS.c.measured_on == "test slice")
    condition = scale & RUNS.c.result.in_(list(ids)) & RUNS.c.value.is_not(None)
    query = select(RUNS.c.result, RUNS.c.value).where(condition).order_by(RUNS.c.first)
    return {row.result: row.value for row in store.database.rows(query)}


def names(store: EventStore, runs: Collection[str]) -> dict[str, str]:
    """Return run id → name, of those of the runs that are known."""
    catch_up(store, Runs())
    rows = store.database.rows(select(RUNS.c.run, RUNS.c.name).where(RUNS.c.run.in_(list(runs))))
    return {row.run: row.name for row in rows}


def called_like(store: EventStore, text: str) -> Select[str]:
    """Return the SQL query for the ids of the runs whose names contain the text."""
    catch_up(store, Runs())
    return select(RUNS.c.run).where(RUNS.c.name.contains(text, autoescape=True))


def name(store: EventStore, run: str) -> str:
    """Return a run's name for messages; its id if the run is unknown or the log cannot be read."""
    try:
        return names(store, [run]).get(run, run)
    except EventsError:
        return run


def free_name(store: EventStore, name: str) -> str:
    """Return the name if no run is called so, or the next free one like it."""
    catch_up(store, Runs())
    with store.database.reading() as connection:
        return RunNames(connection, {}).free("", name)[0]


def position(store: EventStore) -> int:
    """Return the position in the log that the run list has reached, once it has caught up."""
    catch_up(store, Runs())
    return projection.position(store, Runs())


def queue(store: EventStore, limit: int | None = None) -> list[Entry]:
    """Return at most `limit` rows of runs that have not ended: highest priority, then oldest, first."""
    catch_up(store, Runs())
    waiting = select(*WHOLE).where(RUNS.c.ended.is_(None))
    query = waiting.order_by(RUNS.c.priority.desc(), RUNS.c.first).limit(limit)
    return [_told(row) for row in store.database.rows(query)]
