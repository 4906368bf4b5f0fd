"""Projection of merging runs: the run list, candidates, metrics and lineage as tables.

The tables may be dropped; `forge db rebuild` makes them again. Each row follows from the run's
events alone and equals what the fold says (a test compares them).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import BigInteger, Connection, Index, Table, delete, desc, insert, select
from sqlmodel import Field, SQLModel

from events import ChainError, Envelope, EventsError, EventStore, PayloadError, UnknownEventError
from runs import imported_pasts
from runs.errors import ForgeError
from runs.streams import PREFIX

#: `generation` of a measurement on a whole slice.
WHOLE = -1


class RunRow(SQLModel, table=True):
    """One run of the run list."""

    __tablename__ = "runs"  # pyright: ignore[reportAssignmentType]
    #: For the queue: runs that have not ended, in the queue's order.
    __table_args__ = (Index("runs_waiting", "ended", desc("priority"), "first"),)

    run: str = Field(primary_key=True)
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
    #: The last complete generation.
    generation: int | None
    champion: str | None
    score: float | None
    #: Seconds that its tasks took.
    device_seconds: float
    #: JSON: the best score of each generation, on its own draw.
    curve: str


class CandidateRow(SQLModel, table=True):
    """One model of a run: the base, a source, a baseline or a candidate."""

    __tablename__ = "candidates"  # pyright: ignore[reportAssignmentType]

    run: str = Field(primary_key=True)
    recipe_id: str = Field(primary_key=True)
    #: seeded, merged, mutated, sampled, crossed, baseline or source.
    kind: str
    name: str | None
    generation: int | None
    slot: int | None
    digest: str


class MetricRow(SQLModel, table=True):
    """One evaluation, as recorded."""

    __tablename__ = "metrics"  # pyright: ignore[reportAssignmentType]

    run: str = Field(primary_key=True)
    recipe_id: str = Field(primary_key=True)
    slice: str = Field(primary_key=True)
    generation: int = Field(primary_key=True)
    fitness: float | None
    perplexity: float | None
    accuracy: float | None


class LineageRow(SQLModel, table=True):
    """A child and one of its parents, by recipe id."""

    __tablename__ = "lineage"  # pyright: ignore[reportAssignmentType]

    run: str = Field(primary_key=True)
    child: str = Field(primary_key=True)
    parent: str = Field(primary_key=True)


def _table(cls: type[SQLModel]) -> Table:
    return cls.__table__  # pyright: ignore[reportAttributeAccessIssue]


RUNS, CANDIDATES, METRICS, LINEAGE = map(_table, (RunRow, CandidateRow, MetricRow, LineageRow))


class Runs:
    """The projection of merging runs."""

    name = "evomerge"
    version = 7
    tables = (RUNS, CANDIDATES, METRICS, LINEAGE)

    def apply(self, store: EventStore, connection: Connection, rows: Sequence[Envelope]) -> None:
        """Put rows of the log into the tables; skip rows of other kinds of run."""
        ours = [row for row in rows if row.stream.startswith(PREFIX)]
        names = list(dict.fromkeys(row.stream.removeprefix(PREFIX) for row in ours))
        known = select(RUNS).where(RUNS.c.run.in_(names))
        runs = {r.run: dict(r._mapping) for r in connection.execute(known)}
        batch = Batch(runs, imported_pasts.heads(store) if ours else frozenset())
        for row in ours:
            batch.add(store, row.stream.removeprefix(PREFIX), row)
        batch.write(connection)


class Batch:
    """Changes from some rows of the log, collected and then written at once."""

    def __init__(self, runs: dict[str, dict[str, Any]], pasts: frozenset[str]) -> None:
        self._runs = runs
        #: Hashes of the events that end the history of runs imported only as a past.
        self._pasts = pasts
        self._changed: dict[str, None] = {}
        self._new: dict[Table, dict[tuple, dict[str, Any]]] = {
            table: {} for table in (CANDIDATES, METRICS, LINEAGE)
        }

    def add(self, store: EventStore, run: str, row: Envelope) -> None:
        """Add one event of a run. Raises ChainError if its version is not a new one."""
        from evomerge.run import events

        entry = self._runs.setdefault(run, _blank(run, row))
        if row.version <= entry["version"]:
            raise ChainError(row.stream, row.version, "it was inserted, or its version is taken")
        self._changed[run] = None
        entry |= {"version": row.version, "head": row.hash, "updated_at": row.recorded_at}
        entry["past"] = row.hash in self._pasts
        try:
            event = events.REGISTRY.load(row)
        except UnknownEventError:
            return  # an event of a newer version
        if isinstance(event, events.Forked):
            self._inherit(store, run, event)
        else:
            self._note(run, event)

    def _inherit(self, store: EventStore, run: str, fork: Any) -> None:
        """Give a fork the rows of its past, to begin with."""
        from evomerge.run import events
        from evomerge.run.repository import history

        entry = self._runs[run]
        try:
            past = list(history(store, fork.parent, fork.version))
        except (ForgeError, EventsError):
            past = []  # the past was changed or is missing: `forge verify` says which
        for row in past:
            try:
                event = events.REGISTRY.load(row)
            except (UnknownEventError, PayloadError):
                continue
            if not isinstance(event, events.Forked):
                self._note(run, event)
        entry |= {"owner": fork.owner, "parent": fork.parent, "device": fork.config.device}
        entry |= {"paused": False, "ended": None if entry["ended"] != "completed" else "completed"}

    def _note(self, run: str, event: Any) -> None:
        from evomerge.run import budget, events

        entry = self._runs[run]
        entry["device_seconds"] += budget.device(event)
        match event:
            case events.Submitted():
                entry |= {"owner": event.owner, "priority": _bounded(event.priority)}
                entry["labels"] = " ".join(sorted(event.labels))
                entry["device"] = event.config.device
            case events.PriorityChanged():
                entry["priority"] = _bounded(event.priority)
            case events.Imported():
                entry |= {"owner": event.owner, "paused": True, "priority": 0}
            case events.Paused():
                entry["paused"] = True
            case events.Resumed():
                entry["paused"] = False
            case events.Retried() if entry["ended"] == "failed":
                entry["ended"] = None
            case events.Started():
                entry |= {"started": True, "profile": event.profile.of_machine}
                for source in (event.base, *event.sources):
                    self._built(run, source.recipe_id, "source", source.digest, source.name)
            case events.BaselineBuilt():
                self._built(run, event.recipe_id, "baseline", event.digest, event.name)
                self._descends(run, event)
            case (
                events.Seeded()
                | events.Merged()
                | events.Mutated()
                | events.Sampled()
                | events.Crossed()
            ):
                place = (event.generation, event.slot)
                self._built(run, event.recipe_id, event.type, event.digest, None, *place)
                self._descends(run, event)
            case events.Evaluated():
                self._measured(run, event)
            case events.GenerationCompleted():
                entry["generation"] = event.generation
                best = max((s for s in event.scores if s is not None), default=None)
                entry["curve"] = json.dumps([*json.loads(entry["curve"]), best])
            case events.ChampionChanged():
                entry |= {"champion": event.recipe_id, "score": event.score}
            case events.Completed() | events.Failed() | events.Cancelled():
                entry["ended"] = event.type

    def _built(
        self,
        run: str,
        recipe_id: str,
        kind: str,
        digest: str,
        name: str | None,
        generation: int | None = None,
        slot: int | None = None,
    ) -> None:
        values = {"kind": kind, "name": name, "generation": generation, "slot": slot}
        row = {"run": run, "recipe_id": recipe_id, "digest": digest, **values}
        self._new[CANDIDATES].setdefault((run, recipe_id), row)

    def _descends(self, run: str, event: Any) -> None:
        from evomerge.recipes.recipe import parents

        for parent in dict.fromkeys(parents(event.recipe)):
            row = {"run": run, "child": event.recipe_id, "parent": parent}
            self._new[LINEAGE][run, event.recipe_id, parent] = row

    def _measured(self, run: str, event: Any) -> None:
        generation = WHOLE if event.generation is None else event.generation
        key = {"run": run, "recipe_id": event.recipe_id, "slice": event.slice}
        self._new[METRICS][run, event.recipe_id, event.slice, generation] = {
            **key,
            "generation": generation,
            "fitness": event.fitness.scalar if event.fitness else None,
            "perplexity": event.components.perplexity if event.components else None,
            "accuracy": event.components.accuracy if event.components else None,
        }

    def write(self, connection: Connection) -> None:
        """Write everything that was collected into the tables."""
        changed = [{**self._runs[run], "status": _status(self._runs[run])} for run in self._changed]
        if changed:
            connection.execute(delete(RUNS).where(RUNS.c.run.in_(list(self._changed))))
            connection.execute(insert(RUNS), changed)
        for table, rows in self._new.items():
            keys = [column.name for column in table.primary_key]
            new = list(self._unknown(connection, table, keys, rows))
            if new:
                connection.execute(insert(table), new)

    @staticmethod
    def _unknown(
        connection: Connection, table: Table, keys: list[str], rows: dict[tuple, dict[str, Any]]
    ) -> Iterable[dict[str, Any]]:
        """Return the rows that are not in the table yet: a recipe may be built twice in a run."""
        runs = list(dict.fromkeys(key[0] for key in rows))
        columns = [table.c[name] for name in keys]
        query = select(*columns).where(table.c.run.in_(runs), columns[1].in_([k[1] for k in rows]))
        known = {tuple(row) for row in connection.execute(query)} if rows else set()
        return (row for key, row in rows.items() if key not in known)


def _bounded(priority: int) -> int:
    """Return the recorded priority, cut to ±`MOST_PRIORITY`, which every database can hold."""
    from evomerge.run.events import MOST_PRIORITY

    return max(-MOST_PRIORITY, min(MOST_PRIORITY, priority))


def _blank(run: str, first: Envelope) -> dict[str, Any]:
    """Return the row of a run of which only the first event is known."""
    return {
        "run": run,
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
        "generation": None,
        "champion": None,
        "score": None,
        "device_seconds": 0.0,
        "curve": "[]",
    }


def _status(entry: dict[str, Any]) -> str:
    """Return the word that `RunState.status` has for the run of a row."""
    if entry["ended"]:
        return entry["ended"]
    waits = entry["paused"] or entry["past"]
    return "paused" if waits else "running" if entry["started"] else "submitted"
