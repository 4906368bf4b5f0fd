"""The run list: a projection of the log to one row a run, of every kind; and the runs' names.

The table may be dropped; `forge db rebuild` makes it again. But for its name, which depends on the
runs before it, each row follows from the run's events alone and equals what the fold says (a test
compares them).

A name is a label, unique in a log: a user changes it at any time. Streams, addresses and digests have
the run's id. A run without a name is called by kind and day (`cognate-1128`), or by its id if a user
chose the id; a phase by its pipeline (`mini-1128.5-learned`). If a name is taken, the next number
follows (`cognate-1128-2`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVarTuple

from sqlalchemy import (
    BigInteger,
    Connection,
    Index,
    Row,
    UnaryExpression,
    delete,
    desc,
    func,
    insert,
    select,
)
from sqlmodel import Field, SQLModel

from agent_forge.events import (
    ChainError,
    Envelope,
    Event,
    EventsError,
    EventStore,
    PayloadError,
    UnknownEventError,
)
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, ForgeError
from agent_forge.runs.history import repository
from agent_forge.runs.history.repository import history
from agent_forge.runs.kinds.kind import AnyKind
from agent_forge.runs.kinds.view import BLANK
from agent_forge.runs.panels.head import Entry
from agent_forge.runs.record import events, lineage
from agent_forge.runs.record.device_setting import AUTO
from agent_forge.runs.streams import NAME, run_of

#: Characters of a reason in the run list.
MOST_REASON = 1000

Types = TypeVarTuple("Types")
#: The queue's order.
_URGENT: UnaryExpression[int] = desc("priority")


class RunRow(SQLModel, table=True):
    """One run of the run list."""

    __tablename__ = "runs"  # pyright: ignore[reportAssignmentType]
    #: For the queue: runs that have not ended, in the queue's order.
    __table_args__ = (
        Index("runs_waiting", "ended", _URGENT, "first"),
        Index("runs_stem", "stem", "number"),
    )

    run: str = Field(primary_key=True)
    #: What it is called, unique in the log: as a user wants, or by kind and day, or by its parent.
    name: str = Field(index=True)
    #: Stem and number of the name (`run_names.split`), to find the next free one.
    stem: str
    number: int
    #: True if a user has named it.
    named: bool
    note: str
    #: Its tags, separated by spaces.
    tags: str
    #: The key that a user submitted it with.
    key: str | None
    kind: str
    #: Position of its first event: newer runs have higher positions.
    first: int = Field(sa_type=BigInteger, index=True)
    #: completed, failed, cancelled, paused, running or submitted.
    status: str
    started: bool
    paused: bool
    #: The run was imported only as the past of a fork, and waits.
    past: bool
    ended: str | None
    owner: str
    priority: int
    #: Its labels, separated by spaces.
    labels: str
    device: str
    #: The machine part of the profile that the run is pinned to since its start.
    profile: str | None
    submitted_at: str
    updated_at: str
    #: Version and head of its own stream.
    version: int
    head: str
    #: The run it was forked from.
    parent: str | None
    #: The number of the last complete unit (of a merging run: generation).
    done: int | None
    #: The id of the result so far; its value, metric and slice as the head has them.
    result: str | None
    metric: str
    value: float | None
    unit: str
    better: str | None
    measured_on: str
    #: Seconds that its tasks took.
    device_seconds: float
    #: JSON: one value a unit (of a merging run: a generation's best score, on its own draw).
    curve: str
    #: The id of its first event, which is the cause of the runs that it delegates.
    first_id: str = Field(index=True)
    #: The run that it is a task of.
    part_of: str | None = Field(index=True)
    #: Why it has failed or was cancelled.
    reason: str | None
    #: JSON: its stages, of a run that delegates runs; see `runs.lists.stages`.
    stages: str | None
    #: Bits per byte and bytes of the newest model that its stages have measured.
    quality: float | None
    bytes: int | None = Field(sa_type=BigInteger)


RUNS = RunRow.metadata.tables["runs"]


def entry_of(row: Row[*Types]) -> Entry:
    """Return a row of a query as column → value."""
    return dict(row._mapping)  # pyright: ignore[reportPrivateUsage]  # SQLAlchemy's public name


_PART = RUNS.alias("part")
#: Seconds that the tasks of a run, and of the runs that it delegates, took.
SPENT = (
    RUNS.c.device_seconds
    + select(func.coalesce(func.sum(_PART.c.device_seconds), 0.0))
    .where(_PART.c.part_of == RUNS.c.run)
    .scalar_subquery()
)


class Runs:
    """The projection of the log to the run list."""

    name = "runs"
    version = 6
    tables = (RUNS,)

    def apply(self, store: EventStore, connection: Connection, rows: Sequence[Envelope]) -> None:
        """Put rows of the log into the table; skip rows that are of no known kind of run."""
        run_rows = [row for row in rows if kinds.is_run(row.stream)]
        names = list(dict.fromkeys(run_of(row.stream) for row in run_rows))
        query = select(RUNS).where(RUNS.c.run.in_(names))
        runs = {r.run: entry_of(r) for r in connection.execute(query)}
        causes = [row.causation for row in run_rows if row.version == 1 and row.causation]
        asking = select(RUNS.c.first_id, RUNS.c.run).where(RUNS.c.first_id.in_(causes))
        askers = {r.first_id: r.run for r in connection.execute(asking)} if causes else {}
        pasts = repository.heads(store) if run_rows else frozenset[str]()
        batch = Batch(runs, pasts, askers, RunNames(connection, runs))
        for row in run_rows:
            batch.add(store, row)
        batch.write(connection)


class RunNames:
    """Names of the runs in the table and of those that a batch has changed."""

    def __init__(self, connection: Connection, runs: dict[str, Entry]) -> None:
        self._connection = connection
        #: Rows that the batch knows, by run; those of the table count for other runs only.
        self._runs = runs

    def free(self, run: str, name: str) -> tuple[str, str, int]:
        """Return (name, stem, number) for a run: of `name`, or of the next free name like it."""
        other_rows = [row for row in self._runs.values() if row["run"] != run]
        stored = RUNS.c.run.not_in([run, *self._runs])
        holder = select(RUNS.c.run).where(stored & (RUNS.c.name == name)).limit(1)
        if (
            name not in {row["name"] for row in other_rows}
            and not self._connection.execute(holder).first()
        ):
            return name, *split(name)
        last = select(RUNS.c.number).where(stored & (RUNS.c.stem == name))
        last = last.order_by(RUNS.c.number.desc()).limit(1)
        numbers = [row["number"] for row in other_rows if row["stem"] == name]
        number = max(1, *numbers, self._connection.execute(last).scalar() or 1) + 1
        return numbered(name, number), name, number

    def parts(self, run: str) -> None:
        """Read the rows of the runs that a run has asked for, itself or through others, into `runs`."""
        inside = RUNS.c.run.startswith(f"{run}.", autoescape=True)
        for row in self._connection.execute(select(RUNS).where(inside)):
            self._runs.setdefault(row.run, entry_of(row))

    def of(self, run: str) -> str | None:
        """Return the name of a run; None if neither the batch nor the table has the run."""
        if run in self._runs:
            return self._runs[run]["name"]
        return self._connection.execute(select(RUNS.c.name).where(RUNS.c.run == run)).scalar()


class Batch:
    """Changes from some rows of the log, collected and then written at once."""

    def __init__(
        self, runs: dict[str, Entry], pasts: frozenset[str], askers: dict[str, str], names: RunNames
    ) -> None:
        self._runs = runs
        self._names = names
        #: Id of a run's first event → the run, of runs that have asked for others.
        self._askers = {**askers, **{row["first_id"]: run for run, row in runs.items()}}
        #: Hashes of the events that end the history of runs imported only as a past.
        self._pasts = pasts
        self._changed: dict[str, None] = {}

    def add(self, store: EventStore, row: Envelope) -> None:
        """Add one event of a run. Raises ChainError if its version is not a new one."""
        kind, run = kinds.kind_of(row.stream), run_of(row.stream)
        assert kind
        if run not in self._runs:
            asker = self._askers.get(row.causation or "")
            self._runs[run] = {**_blank(kind.name, run, row), "part_of": asker}
            self._askers[row.event_id] = run
            self._set_name(run, self._default_name(run))
        entry = self._runs[run]
        if row.version <= entry["version"]:
            raise ChainError(row.stream, row.version, "it was inserted, or its version is taken")
        self._changed[run] = None
        entry |= {"version": row.version, "head": row.hash, "updated_at": row.recorded_at}
        entry["past"] = row.hash in self._pasts
        try:
            event = kind.state.registry.load(row)
        except UnknownEventError:
            return  # an event of a newer version
        if isinstance(event, events.Forked):
            self._inherit(store, kind, run, event)
        else:
            self._note(kind, run, event)

    def _default_name(self, run: str) -> str:
        """Return the name of a run that no user has named: by its parent, its id, or kind and day."""
        entry = self._runs[run]
        parent = entry["part_of"]
        name = self._names.of(parent) if parent else None
        part = of_part(parent, name, run) if parent and name else None
        if part or not _MADE.fullmatch(run):
            return part or run
        return dated(entry["kind"], entry["submitted_at"])

    def _set_name(self, run: str, name: str) -> None:
        """Set a run's name to `name`, or to the next free one like it."""
        name, stem, number = self._names.free(run, name)
        self._runs[run] |= {"name": name, "stem": stem, "number": number}
        self._changed[run] = None

    def _describe(self, run: str, event: events.Described) -> None:
        """Put a user's words into a run's row; a new name also renames the runs that it asked for."""
        entry = self._runs[run]
        if event.note is not None:
            entry["note"] = event.note
        if event.tags is not None:
            entry["tags"] = " ".join(event.tags)
        if event.key is not None:
            entry["key"] = event.key
        if event.name is None:
            return
        entry["named"] = bool(event.name)
        self._set_name(run, event.name or self._default_name(run))
        self._names.parts(run)
        for part in sorted(name for name in self._runs if name.startswith(f"{run}.")):
            if not self._runs[part]["named"] and self._runs[part]["part_of"]:
                self._set_name(part, self._default_name(part))

    def _inherit(self, store: EventStore, kind: AnyKind, run: str, fork: events.Forked) -> None:
        """Fill the row of a fork by the events of its past."""
        entry = self._runs[run]
        try:
            past = list(history(store, fork.parent, fork.version))
        except (ForgeError, EventsError):
            past = []  # the past was changed or is missing: `forge verify` says which
        for row in past:
            try:
                event = kind.state.registry.load(row)
            except (UnknownEventError, PayloadError):
                continue
            if not isinstance(event, events.Forked | events.Described):
                self._note(kind, run, event)
        entry |= {"owner": fork.owner, "parent": fork.parent, "device": fork.config.device}
        entry |= {"paused": False, "ended": None if entry["ended"] != "completed" else "completed"}
        entry["reason"] = None
        kind.view.row(entry, fork)

    def _note(self, kind: AnyKind, run: str, event: Event) -> None:
        entry = self._runs[run]
        entry["device_seconds"] += lineage.device(event)
        match event:
            case events.Submitted():
                entry |= {"owner": event.owner, "priority": _bounded(event.priority)}
                entry["labels"] = " ".join(sorted(event.labels))
                entry["device"] = event.config.device
            case events.Described():
                self._describe(run, event)
            case events.PriorityChanged():
                entry["priority"] = _bounded(event.priority)
            case events.Imported():
                entry |= {"owner": event.owner, "paused": True, "priority": 0}
            case events.Paused():
                entry["paused"] = True
            case events.Resumed():
                entry["paused"] = False
            case events.Retried() if entry["ended"] == "failed":
                entry |= {"ended": None, "reason": None}
            case events.Started():
                entry |= {"started": True, "profile": event.machine}
                if entry["device"] == AUTO and (profile := getattr(event, "profile", None)):
                    entry["device"] = profile.device
            case events.Completed() | events.Failed() | events.Cancelled():
                entry |= {"ended": event.type, "reason": _cut(getattr(event, "reason", None))}
            case _:
                pass
        kind.view.row(entry, event)

    def write(self, connection: Connection) -> None:
        """Write everything that was collected into the table."""
        changed = [{**self._runs[run], "status": _status(self._runs[run])} for run in self._changed]
        if changed:
            connection.execute(delete(RUNS).where(RUNS.c.run.in_(list(self._changed))))
            connection.execute(insert(RUNS), changed)


def _bounded(priority: int) -> int:
    """Return the recorded priority, cut to ±`MOST_PRIORITY`, which every database can hold."""
    return max(-events.MOST_PRIORITY, min(events.MOST_PRIORITY, priority))


def _cut(text: str | None) -> str | None:
    """Return a reason as it is, cut after `MOST_REASON` characters with " …"; None without one."""
    return text if text is None or len(text) <= MOST_REASON else f"{text[:MOST_REASON]} …"


def _blank(kind: str, run: str, first: Envelope) -> Entry:
    """Return the row of a run of which only the first event is known."""
    return {
        "run": run,
        "name": "",
        "stem": "",
        "number": 1,
        "named": False,
        "note": "",
        "tags": "",
        "key": None,
        "kind": kind,
        "first": first.position,
        "started": False,
        "paused": False,
        "past": False,
        "ended": None,
        "owner": "",
        "priority": 0,
        "labels": "",
        "device": "",
        "profile": None,
        "submitted_at": first.recorded_at,
        "updated_at": first.recorded_at,
        "version": 0,
        "head": "",
        "parent": None,
        "device_seconds": 0.0,
        "first_id": first.event_id,
        "part_of": None,
        "reason": None,
        **BLANK,
    }


def _status(entry: Entry) -> str:
    """Return the status of a row's run: how it ended, or "paused", "running" or "submitted"."""
    if entry["ended"]:
        return entry["ended"]
    waits = entry["paused"] or entry["past"]
    return "paused" if waits else "running" if entry["started"] else "submitted"


#: A name with a number behind it: the second of its stem and later ones.
_NUMBERED = re.compile(r"(.+)-([2-9]|[1-9][0-9]{1,8})")
#: Ids of runs that nobody chose: a day or `key`, and random digits or a hash.
_MADE = re.compile(r"(20[0-9]{6}|key)-[0-9a-f]{6,12}")
#: Characters of a name that is made from a file's.
_STEM = 60


def check(name: str) -> str:
    """Return the name as it is. Raises ConfigError if no run can have it."""
    if NAME.fullmatch(name) is None:
        raise ConfigError(
            f"a run cannot be called {name[:100]!r}: give 1 to 100 letters (a to z, A to Z), digits or "
            "_.+-, the first a letter, a digit or _."
        )
    return name


def split(name: str) -> tuple[str, int]:
    """Return (stem, number) of a name: (mini-1128, 2) of mini-1128-2, and (mini, 1) of mini."""
    match = _NUMBERED.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, 1)


def numbered(stem: str, number: int) -> str:
    """Return the name of a stem and a number: mini-2 of (mini, 2), and mini of (mini, 1)."""
    return stem if number == 1 else f"{stem}-{number}"


def dated(text: str, submitted_at: str) -> str:
    """Return a run's name from a kind or file name and the day: mini-1128 of mini, 2026-11-28T…

    Characters that a name cannot have become dashes.
    """
    plain = re.sub(r"[^A-Za-z0-9_.+]+", "-", text[:_STEM]).strip("-.+") or "run"
    return f"{plain}-{submitted_at[5:7]}{submitted_at[8:10]}"


def of_part(parent: str, parent_name: str, run: str) -> str | None:
    """Return the name of a run that another one asked for; None if its id does not say so."""
    return parent_name + run[len(parent) :] if run.startswith(f"{parent}.") else None
