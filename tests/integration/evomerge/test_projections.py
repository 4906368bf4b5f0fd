"""Projections equal the fold, catch up after a crash, and are made anew by a newer version."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select, text

from agent_forge.events import Envelope, EventStore, ProjectionError, StoreUnavailableError, failpoints
from agent_forge.events.databases.sqlite import open_store
from agent_forge.events.projection import PROJECTIONS, catch_up, gaps, position, rebuild
from agent_forge.evomerge.reports import generation_rows
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs import kinds
from agent_forge.runs.history import repository
from agent_forge.runs.lists import queries
from agent_forge.runs.lists.projections import RUNS, Runs
from agent_forge.runs.panels.head import listed
from agent_forge.runs.streams import stream
from agent_forge.worker.commands.fork import fork, plan
from testing.worlds import fake_runs
from testing.worlds.fake_world import RUN


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with a finished run, one under way, a failed one's beginning, and two forks."""
    path = tmp_path_factory.mktemp("log") / "log.db"
    store = open_store(path)
    fake_runs.whole(store)
    fake_runs.submit(store, "half")
    fake_runs.finish(store, "half", lambda state: state.generation == 1)
    fake_runs.submit(store, "new")
    first = fork(store, plan(store, RUN, None, 1, {"generations": 3}))
    fake_runs.finish(store, first)
    fork(store, plan(store, first, None, 2, {}))
    store.close()
    return path


@pytest.fixture
def store(path: Path, tmp_path: Path) -> Iterator[EventStore]:
    """A copy of it."""
    copy = tmp_path / "log.db"
    copy.write_bytes(path.read_bytes())
    store = open_store(copy)
    yield store
    store.close()


def table(store: EventStore, which: Any, run: str) -> list[dict[str, Any]]:
    with store.database.reading() as connection:
        rows = connection.execute(select(which).where(which.c.run == run))
        return [dict(row._mapping) for row in rows]


def everything(store: EventStore) -> list[list[tuple]]:
    """All rows of all tables."""
    with store.database.reading() as connection:
        return [
            sorted(map(tuple, connection.execute(select(which))), key=repr) for which in Runs.tables
        ]


def assert_like_the_fold(store: EventStore, run: str, state: RunState) -> None:
    (entry,) = table(store, RUNS, run)
    assert entry["status"] == state.status
    assert state.submitted
    assert entry["owner"] == state.submitted.owner
    assert (entry["version"], entry["head"]) == (state.version, state.head)
    assert entry["done"] == max(state.generations, default=None)
    assert entry["result"] == state.champion
    result = kinds.of("evomerge").view.head(state).result
    assert entry["value"] == (result.value if result else None)
    if result:
        assert listed(result.metric, result.value, result.on).items() <= entry.items()
    assert entry["device_seconds"] == pytest.approx(state.spent.device)
    assert json.loads(entry["curve"]) == [row["best"] for row in generation_rows.rows(state)]
    assert entry["parent"] == (state.forked.parent if state.forked else None)


def test_the_projection_equals_the_fold_of_every_run(store: EventStore) -> None:
    rows, total = queries.page(store, None)
    assert total == len(rows) == 5
    for row in rows:
        assert_like_the_fold(store, row["run"], repository.load(store, row["run"]))


def test_the_newest_runs_come_first_and_may_be_limited(store: EventStore) -> None:
    rows, total = queries.page(store, 2)
    assert total == 5
    assert [row["parent"] is not None for row in rows] == [True, True]
    assert [row["run"] for row in queries.page(store, None)[0]][-1] == RUN


def test_in_steps_it_comes_to_the_same(path: Path, tmp_path: Path) -> None:
    """Caught up after every few events, as a worker does."""
    source = open_store(path)
    rows = source.read_all(limit=100_000)
    stepwise, at_once = open_store(tmp_path / "a.db"), open_store(tmp_path / "b.db")
    for group in (rows[start : start + 37] for start in range(0, len(rows), 37)):
        for row in group:
            so_far = source.read(row.stream, upto=row.version)
            stepwise.adopt(row.stream, so_far)
            at_once.adopt(row.stream, so_far)
        catch_up(stepwise, Runs())
    catch_up(at_once, Runs())
    assert everything(stepwise) == everything(at_once)
    for store in (source, stepwise, at_once):
        store.close()


class Crash(BaseException):
    """What a kill is to a test in one process."""


@pytest.mark.parametrize("name", ["projection-made", "projection-read", "projection-applied"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_crash_leaves_it_behind_and_never_wrong(
    store: EventStore, monkeypatch: pytest.MonkeyPatch, name: str, nth: int
) -> None:
    hits = itertools.count(1)

    def hit(at: str) -> None:
        if at == name and next(hits) == nth:
            raise Crash

    monkeypatch.setattr("agent_forge.events.projection.PAGE", 50)
    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "hit", hit)
        try:
            catch_up(store, Runs())
        except Crash:
            pass
        else:
            assert (name, nth) == ("projection-made", 2)
    catch_up(store, Runs())
    healed = everything(store)
    rebuild(store, Runs())
    assert everything(store) == healed
    assert healed[0]


class Broken(Runs):
    """A projection with a defect that shows at one type of event."""

    name = "broken"
    tables = ()

    def __init__(self, error: Exception) -> None:
        self._error = error

    def apply(self, store: EventStore, connection: Connection, rows: Sequence[Envelope]) -> None:
        """Raise the error at a `started`."""
        if any(row.type == "started" for row in rows):
            raise self._error


@pytest.mark.parametrize("error", [TypeError("x"), KeyError("x"), ValueError("x")])
def test_a_defect_of_a_projection_stops_it_and_leaves_no_gap(
    store: EventStore, error: Exception
) -> None:
    """A gap is for ever; a defect is mended by the next version, which must find every row."""
    with pytest.raises(type(error)):
        catch_up(store, Broken(error))
    assert gaps(store.database) == []


def test_an_error_of_the_data_is_a_gap(store: EventStore) -> None:
    catch_up(store, Broken(OverflowError("too large")))
    assert "(started): too large" in gaps(store.database)[0]


def test_a_projection_of_an_older_version_is_made_anew(store: EventStore) -> None:
    catch_up(store, Runs())
    wanted = everything(store)
    with store.database.writing() as connection:
        connection.execute(text("UPDATE projections SET version = 0"))
        connection.execute(text("ALTER TABLE runs DROP COLUMN result"))
    assert catch_up(store, Runs()) > 0
    assert everything(store) == wanted


def test_dropped_tables_come_back(store: EventStore) -> None:
    """All that is not truth may be dropped at any time."""
    catch_up(store, Runs())
    wanted = everything(store)
    with store.database.writing() as connection:
        for which in (PROJECTIONS, *Runs.tables):
            which.drop(connection)
    assert queries.page(store, None)[1] == 5
    assert everything(store) == wanted


def test_a_log_that_lost_events_is_said_and_not_papered_over(store: EventStore) -> None:
    catch_up(store, Runs())
    with store.database.writing() as connection:
        connection.execute(text("DROP TRIGGER events_no_delete"))
        connection.execute(
            text("DELETE FROM events WHERE position = (SELECT max(position) FROM events)")
        )
    with pytest.raises(ProjectionError, match="no longer has that event"):
        queries.page(store, None)
    rebuild(store, Runs())
    assert queries.page(store, None)[1] == 4


def test_rows_of_other_kinds_of_run_are_passed_over(store: EventStore) -> None:
    from testing.stores.contract import new

    before = queries.page(store, None)
    store.append("training/t1", 0, [new("t1/begun")])
    assert queries.page(store, None) == before


def test_what_a_newer_version_wrote_does_not_stop_the_list(store: EventStore) -> None:
    from testing.stores.contract import new

    store.append(stream("evomerge", "new"), None, [new("new/unknown")])
    rows, _ = queries.page(store, None)
    (entry,) = [row for row in rows if row["run"] == "new"]
    assert entry["version"] == 2
    assert entry["status"] == "submitted"


def test_a_disk_that_is_full_is_said_and_not_what_follows_from_it(store: EventStore) -> None:
    """SQLite undoes the transaction by itself, so the end of its savepoint fails, too."""

    class Large(Runs):
        """A projection that writes more than there is room for."""

        name = "large"
        tables = ()

        def apply(self, store: EventStore, connection: Connection, rows: Sequence[Envelope]) -> None:
            connection.exec_driver_sql("ROLLBACK")  # as SQLite does itself if the disk is full
            connection.exec_driver_sql("CREATE TABLE large AS SELECT zeroblob(50000000) AS x")

    assert position(store, Large()) == 0  # its row is there
    with store.database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")  # means: no more than there are
    with pytest.raises(StoreUnavailableError, match="database or disk is full") as caught:
        catch_up(store, Large())
    assert "savepoint" not in str(caught.value)
