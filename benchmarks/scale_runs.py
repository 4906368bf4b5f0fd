"""Measured costs of recorded runs: events and bytes by kind, folding, tables, lists of a million.

Used by `benchmarks.scale`. A merging run is the one of `benchmarks.events.log replay`, with payloads as
large as a real run's. A cognate run and a pipeline are real ones in miniature.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select, text

from agent_forge.evaluation.data.outcomes import Pool
from agent_forge.events import Envelope, EventStore, New
from agent_forge.events.projection import rebuild
from agent_forge.evomerge.run.state import RunState, fold
from agent_forge.runs.home import Home
from agent_forge.runs.kinds import kind_of
from agent_forge.runs.lists import queries
from agent_forge.runs.lists.projections import RUNS, Runs
from agent_forge.worker import append
from benchmarks.events.log_reading import world
from benchmarks.scale_queue import number, on_postgres
from testing.miniatures import cognate_runs, pipeline_runs

MERGES, BATCH, REPETITIONS = 10, 50, 3
#: Runs of the short list and of the long one, users, and rows inserted at once.
SHORT, LONG, USERS, PAGE = 10_000, 1_000_000, 100, 10_000


@dataclass(frozen=True)
class Recorded:
    """Costs of merging runs of 20 generations in the log, and the speed of reading them."""

    run_events: int
    #: Bytes of the database for one event, indexes and tables included.
    event_bytes: float
    #: Events a second that one process reads, checks and folds.
    folded: float
    #: Events a second that the tables are made of again.
    rebuilt: float


@dataclass(frozen=True)
class Taken:
    """Costs of a run of another kind in the log."""

    what: str
    events: int
    #: Bytes of the database, indexes and tables included.
    bytes: float
    #: Segments of trainings, and bytes of the event of one.
    segments: int
    segment_bytes: float


def size_of(store: EventStore) -> int:
    """Return the bytes of the database."""
    if on_postgres(store):
        return number(store, "SELECT pg_database_size(current_database())")
    return number(store, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")


def rate(count: int, work: Callable[[], object]) -> float:
    """Return how many a second; the first time, which imports and prepares, is not counted."""
    times = []
    for _ in range(REPETITIONS + 1):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return count / statistics.median(times[1:])


def merged(home: Home) -> Recorded:
    """Record merging runs; return their costs."""
    pools = {name: Pool(windows=n, questions=60) for name, n in (("code", 116), ("math", 190))}
    rows = world(pools, 256, search_windows=40, search_questions=12)
    registry = RunState.registry
    with closing(home.open_store()) as store:
        before = size_of(store)
        streams = [f"evomerge/scale-{run}" for run in range(MERGES)]
        for stream in streams:
            events = [New(registry.load(row), f"{stream}/{row.key}") for row in rows]
            for version in range(0, len(events), BATCH):
                store.append(stream, version, events[version : version + BATCH])
        append.project(store)
        each = (size_of(store) - before) / (MERGES * len(rows))
        folded = rate(MERGES * len(rows), lambda: [fold(store.iterate(s)) for s in streams])
        rebuilt = rate(MERGES * len(rows), lambda: rebuild(store, Runs()))
    return Recorded(len(rows), each, folded, rebuilt)


def taken(what: str, rows: Sequence[Envelope], grown: int) -> Taken:
    """Return the costs of rows that made the database grow by `grown` bytes."""
    segments = [len(row.data) for row in rows if row.type == "advanced"]
    return Taken(what, len(rows), grown, len(segments), statistics.mean(segments))


def other_kinds(homes: Callable[[], Home]) -> list[Taken]:
    """Carry a cognate run and a pipeline to their end; return what they take."""
    found = []
    for what, submit, run in (
        ("cognate run of four models", cognate_runs.submit, "r"),
        ("pipeline of a cognate run and a merging run of one generation", _pipeline, "p"),
    ):
        home = homes()
        with closing(home.open_store()) as store:
            append.project(store)
            before = size_of(store)
            submit(home)
            cognate_runs.finish(home, run)
            append.project(store)
            rows = [row for row in store.tail(stop=lambda: True) if kind_of(row.stream)]
            found.append(taken(what, rows, size_of(store) - before))
    return found


def _pipeline(home: Home) -> str:
    return pipeline_runs.submit(home, pipeline_runs.passing())


# ---- lists -------------------------------------------------------------------------------------

#: Question to the list of runs → the query.
QUESTIONS: dict[str, Callable[[EventStore], Any]] = {
    "the newest 50 and their number": lambda store: queries.page(store, 50),
    "the best 50 by score": lambda store: queries.page(store, 50, sort="score"),
    "50 of one user": lambda store: queries.page(store, 50, owner="user-7"),
    "50 with a text in name, owner or label": lambda store: queries.page(store, 50, text="00777"),
    "the queue, its first 50": lambda store: queries.queue(store, 50),
}


def lengthen(store: EventStore, start: int, stop: int) -> None:
    """Put copies of a run's row, older than it and with other names, into the list of runs."""
    with store.database.reading() as connection:
        row = dict(connection.execute(select(RUNS).limit(1)).one()._mapping)
    for begin in range(start, stop, PAGE):
        copies = [
            {**row, "run": f"copy-{n:07d}", "first": -n, "first_id": f"copy-{n}"}
            | {"owner": f"user-{n % USERS}", "score": n % 9973 / 9973}
            for n in range(begin + 1, begin + PAGE + 1)
        ]
        with store.database.writing() as connection:
            connection.execute(insert(RUNS), copies)


def lists(home: Home) -> tuple[dict[str, dict[int, float]], float]:
    """Return question → runs in the list → median seconds; and the bytes of a run in the table.

    The home has recorded runs. The list is lengthened by copies of a row: their events are missing.
    """
    found: dict[str, dict[int, float]] = {question: {} for question in QUESTIONS}
    with closing(home.open_store()) as store:
        before = size_of(store)
        for start, stop in ((0, SHORT), (SHORT, LONG)):
            lengthen(store, start, stop)
            if on_postgres(store):
                with store.database.writing() as connection:
                    connection.execute(text("ANALYZE"))
            for question, ask in QUESTIONS.items():
                found[question][stop] = 1 / rate(1, lambda ask=ask: ask(store))
        return found, (size_of(store) - before) / LONG
