"""The simulation of docs/scale.md against queues whose outcome can be computed."""

from __future__ import annotations

import pytest

from benchmarks.scale import Costs, by_devices, by_runs, constants, simulate

COSTS = Costs(
    write=0.01,
    event_bytes=2_000,
    task_writes=4.0,
    idle_writes=0.0,
    task_cpu=0.02,
    idle_cpu=0.01,
    run_events=500,
    folded=10_000,
    rebuilt=5_000,
)


def test_one_device_works_but_for_its_writes() -> None:
    """One second of work and four writes of ten milliseconds: nothing waits."""
    found = simulate(1, 1.0, COSTS)
    assert found.working == pytest.approx(1 / 1.04, rel=0.02)
    assert found.writing == pytest.approx(0.04 / 1.04, rel=0.02)
    assert found.wait == 0


def test_a_log_that_is_always_written_bounds_the_tasks() -> None:
    """A hundred devices ask for 400 writes a second, and the log takes 100: 25 tasks a second."""
    found = simulate(100, 1.0, COSTS)
    assert found.tasks_per_second == pytest.approx(25, rel=0.02)
    assert found.writing == pytest.approx(1, abs=0.01)
    assert found.working == pytest.approx(0.25, rel=0.05)


def test_heartbeats_take_their_part_of_the_log() -> None:
    """Ten devices with one heartbeat a second each: a tenth of the time, beside little work."""
    beating = Costs(**{**vars(COSTS), "idle_writes": 1.0})
    found = simulate(10, 60.0, beating, tasks=200)
    assert found.writing == pytest.approx(0.1 + 10 * 0.04 / 60, rel=0.05)


def test_the_same_constants_give_the_same_tables() -> None:
    assert by_devices(COSTS) == by_devices(COSTS)
    rows = [row.split(" | ") for row in by_runs(COSTS)[2:]]
    assert rows[-1][:3] == ["| 1,000,000", "500,000,000", "1,000.0 GB"]
    assert rows[0][3:] == ["0.00 h", "0.00 h |"]
    assert "| such a run in the log | 1.0 MB |" in constants(COSTS)
