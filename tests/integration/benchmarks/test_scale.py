"""The simulation and the tables of docs/scale.md against values that can be computed by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from agent_forge.runs.home import Home
from benchmarks import scale_tables
from benchmarks.events.log_reading import chained
from benchmarks.scale_queue import LEASE, Broker, Counts, Links, Queue, divided, of_log, of_redis
from benchmarks.scale_runs import Recorded, Taken, taken
from benchmarks.scale_simulation import Costs, Measured, simulate
from benchmarks.scale_store import Artifact
from benchmarks.scale_tables import (
    by_artifacts,
    by_champions,
    by_devices,
    by_kinds,
    by_runs,
    by_traffic,
    columns_of,
    constants,
    table,
)

COSTS = Costs(write=0.01, task_writes=4.0, beats=0.0, leader_writes=0.0)


def test_one_device_works_but_for_its_writes() -> None:
    """One second of work and four writes of ten milliseconds: nothing waits."""
    found = simulate(1, 1.0, COSTS)
    assert found.working == pytest.approx(1 / 1.04, rel=0.02)
    assert found.writing == pytest.approx(0.04 / 1.04, rel=0.02)
    assert found.wait == 0


def test_a_log_that_is_always_written_bounds_the_tasks() -> None:
    """A hundred devices ask for 400 writes a second, and the log takes 100: 25 tasks a second.

    A quarter of the devices work, so 75 stand in the queue, 0.75 s; it is never longer than 99 writes.
    """
    found = simulate(100, 1.0, COSTS)
    assert found.tasks_per_second == pytest.approx(25, rel=0.02)
    assert found.writing == pytest.approx(1, abs=0.01)
    assert found.working == pytest.approx(0.25, rel=0.05)
    assert 0.74 < found.wait <= 0.99


def test_heartbeats_take_their_part_of_the_log() -> None:
    """Ten devices with one heartbeat a second each: a tenth of the time, beside little work."""
    found = simulate(10, 60.0, replace(COSTS, beats=1.0), tasks=200)
    assert found.writing == pytest.approx(0.1 + 10 * 0.04 / 60, rel=0.05)


def test_the_dispatchers_writes_do_not_grow_with_the_devices() -> None:
    """Ten a second take a tenth of the time, for one device and for ten."""
    costs = replace(COSTS, leader_writes=10.0)
    for devices in (1, 10):
        found = simulate(devices, 60.0, costs, tasks=200)
        assert found.writing == pytest.approx(0.1 + devices * 0.04 / 60, rel=0.06)


# ---- what is measured --------------------------------------------------------------------------


def counts(seconds: float, writes: int, reads: int = 0, cpu: float = 0, commands: int = 0) -> Counts:
    """Return counters; a fifth of the commands are messages."""
    return Counts(seconds, writes, writes + reads, cpu, commands, commands // 5)


def test_phases_tell_devices_dispatcher_and_tasks_apart() -> None:
    """The dispatcher writes 1 and reads 30 a second, an idle device 0.5 and 1, a task 4.

    A device at work writes twice as much as an idle one. Two devices are in the first phase, five in
    the last two.
    """
    start = counts(0, 0)
    found = of_log(
        alone=(start, counts(10, 10 * 1 + 2 * 5, 300 + 2 * 10, cpu=10 * (0.2 + 2 * 0.1))),
        worked=(start, counts(20, 20 * 1 + 2 * 10 + 4 * 50, cpu=20 * 0.4 + 50 * 0.02)),
        more=(start, counts(10, 10 * 1 + 5 * 5, 300 + 5 * 10, cpu=10 * (0.2 + 5 * 0.1))),
        held=(start, counts(10, 10 * 1 + 2 * 5 + 3 * 10, 1500 + 5 * 10)),
        tasks=50,
    )
    by_default = LEASE / 60
    assert found == {
        "idle_writes": pytest.approx(0.5 * by_default),
        "busy_writes": pytest.approx(1.0 * by_default),
        "leader_writes": pytest.approx(1.0),
        "task_writes": pytest.approx(4.0),
        "idle_cpu": pytest.approx(0.1),
        "leader_cpu": pytest.approx(0.2),
        "task_cpu": pytest.approx(0.02),
        "idle_reads": pytest.approx(1.0),
        "leader_reads": pytest.approx(30.0),
        "busy_leader_reads": pytest.approx(150.0),
    }


def test_sqlite_counts_no_reads() -> None:
    start, end = Counts(0, 0, None, 0, 0, 0), Counts(10, 10, None, 0, 0, 0)
    found = of_log((start, end), (start, end), (start, end), (start, end), tasks=1)
    assert found["leader_reads"] is found["busy_leader_reads"] is found["idle_reads"] is None


def test_redis_is_told_apart_by_tasks_and_workers() -> None:
    """One command a second without work; 50 tasks of three more, of which one in five is a message.

    Two connections, four once there are tasks, and six with a second worker.
    """
    start = counts(0, 0)
    alone, worked = (start, counts(10, 0, commands=10)), (start, counts(20, 0, commands=170))
    found = of_redis(alone, worked, clients=[2, 4, 6], tasks=50)
    assert (found.idle, found.task) == (1.0, 3.0)
    assert found.messages == pytest.approx(34 / 50)
    assert (found.worker, found.dispatcher) == (2, 2)


def test_connections_bound_the_devices() -> None:
    """One of 97 is the dispatcher's; a worker takes 4 with one device, and 25 with eight.

    So there are 24 workers of one, or three of eight and one of six.
    """
    links = Links(worker=1, device=3, dispatcher=1, limit=97, mebibytes=2.0)
    assert (links.used(1), links.used(8, 8), links.used(9, 8)) == (5, 26, 30)
    assert links.most() == 24
    assert links.most(8) == 30
    assert links.used(30, 8) == 95 < 97 < links.used(31, 8)


def test_connections_are_divided_by_the_workers_that_have_them() -> None:
    """Three devices of 3 and one besides make 10; two and a dispatcher, 8."""
    assert divided(first=8, second=10) == (1, 3, 1)
    assert divided(first=6, second=7) == (1, 2, 1)


def test_segments_of_trainings_are_counted_by_their_events() -> None:
    """Two of three events are segments, of 30 and of 10 bytes: 20 each."""
    data = (("submitted", "{}"), ("advanced", "x" * 30), ("advanced", "y" * 10))
    rows = [*chained(((type_, 1, text, type_ + text) for type_, text in data), "cognate/r")]
    assert taken("cognate", rows, 999) == Taken("cognate", 3, 999, 2, 20.0)


# ---- tables ------------------------------------------------------------------------------------


def test_a_table_is_markdown() -> None:
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


def cells(made: str) -> list[list[str]]:
    """Return the rows of a table below its titles."""
    return [line.strip("| ").split(" | ") for line in made.splitlines()[2:]]


def test_the_device_table_says_what_the_simulation_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_tables, "DEVICES", (1, 10))
    monkeypatch.setattr(scale_tables, "LENGTHS", (1.0,))
    found = simulate(10, 1.0, COSTS)
    (row,) = [row for row in cells(by_devices({"here": COSTS})) if row[:2] == ["10", "1"]]
    assert row[2] == (
        f"{found.tasks_per_second:,.2f}/s, {found.working:.0%}, {found.writing:.0%}, "
        f"{1000 * found.wait:,.0f} ms"
    )
    assert by_devices({"here": COSTS}) == by_devices({"here": COSTS})


def test_a_database_has_a_column_with_its_append() -> None:
    """A dash stands for what SQLite does not count."""
    broker = Broker(worker=2, dispatcher=2, idle=1.0, task=3.1, messages=1.0)
    queue = Queue(4.0, 0.1, 0.2, 0.6, 0.02, 0.01, 0.03, None, None, None, broker, None)
    recorded = Recorded(500, 2_000, folded=10_000, rebuilt=5_000)
    one = Measured(0.01, queue, {1: 0.002}, recorded, Home(Path("unused")))
    asked = Costs(0.01, task_writes=4.0, beats=0.2, leader_writes=0.6)
    assert one.costs == asked
    assert columns_of({"postgresql": one}) == {"PostgreSQL, 10.00 ms": asked}
    rows = dict(cells(constants({"sqlite": one})))
    assert rows["writing transactions of a task"] == "4.0"
    assert rows["of a device at work, a minute"] == "12.0"
    assert rows["connections to the log of a device"] == "–"


def test_runs_are_multiplied() -> None:
    """500 events of 2,000 bytes: a million runs are 1,000 GB; 5,000 and 10,000 events a second."""
    rows = cells(by_runs(Recorded(500, 2_000, folded=10_000, rebuilt=5_000)))
    assert rows[-1] == ["1,000,000", "500,000,000", "1,000.0 GB", "27.78 h", "13.89 h"]
    assert rows[0] == ["100", "50,000", "0.1 GB", "0.00 h", "0.00 h"]


def test_kinds_are_multiplied() -> None:
    """250 kB a run are 250 GB for a million."""
    (row,) = cells(by_kinds([Taken("cognate", 75, 250_000, 4, 1_200.0)]))
    assert row == ["cognate", "75", "0.25 MB", "4", "1.2 kB", "250 GB"]


def test_snapshots_are_sent_once_a_minute_and_champions_are_kept() -> None:
    """60 MB a minute are a MB/s for each device; a million of 50 MB are 50 TB."""
    calls = Counter(write=2, size=4)
    snapshot = Artifact("snapshot of x", 60_000_000, 4, 0.5, 1.0, calls, calls, calls)
    champion = replace(snapshot, what="champion of x", bytes=50_000_000, objects=2)
    assert cells(by_traffic([snapshot, champion])) == [
        ["snapshot of x", "1.0 MB/s", "10.0 MB/s", "100.0 MB/s", "1,000.0 MB/s"]
    ]
    assert cells(by_champions([snapshot, champion])) == [["champion of x", "50.0 TB", "2 million"]]
    (row,) = cells(by_artifacts([champion]))
    assert row[1:] == ["50.0 MB", "2", "500 ms", "1,000 ms", "4 size, 2 write", "4 size, 2 write"]
