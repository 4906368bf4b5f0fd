"""The points of a crash walk: which hits are chosen, and how shards divide them."""

from __future__ import annotations

import argparse

import pytest

from benchmarks.worker import crash_points
from benchmarks.worker.crash_points import KILLS_A_RUN

#: Hits of the undisturbed run: `a` three times, `b` once.
TRACE = ["a", "b", "a", "a"]


def options(**changes: object) -> argparse.Namespace:
    """The options of a walk without a database server."""
    given = {
        "points": 0,
        "at": None,
        "moments": 0,
        "queued_moments": 0,
        "server_kills": 0,
        "passes": ["kept", "emptied", "queued"],
    }
    return argparse.Namespace(**{**given, **changes})


def test_the_first_hit_of_each_failpoint_and_a_late_one() -> None:
    assert crash_points.chosen(options(at="first"), TRACE) == ["a:1", "b:1"]
    assert crash_points.chosen(options(at="ends"), TRACE) == ["a:1", "a:3", "b:1"]
    assert crash_points.chosen(options(at="ends"), ["a"] * 20) == ["a:1", "a:16"]
    assert crash_points.chosen(options(at="a:2"), TRACE) == ["a:2"]
    assert crash_points.chosen(options(), TRACE) == []
    assert crash_points.chosen(options(points=4), TRACE) == ["a:1", "a:2", "a:3", "b:1"]


def test_both_passes_have_the_same_points_and_moments_within_the_run() -> None:
    found = crash_points.jobs(options(at="first", moments=3), TRACE, set(), 10.0)
    kept, emptied = ([j.points for j in found if j.of == of] for of in ("kept", "emptied"))
    assert kept == emptied
    assert kept[:2] == [("a:1",), ("b:1",)]
    assert all(0.5 <= float(moment) <= 9.5 for (moment,) in kept[2:])
    assert len(kept) == 5


def test_queued_moments_are_all_there_and_five_a_run() -> None:
    found = crash_points.jobs(options(queued_moments=12), TRACE, set(), 10.0)
    assert [(j.of, len(j.points)) for j in found] == [("queued", n) for n in (5, 5, 2)]
    assert max(len(j.points) for j in found) == KILLS_A_RUN


def test_every_failpoint_of_a_queued_run_is_in_one_run_and_neighbours_are_not_in_the_same() -> None:
    names = {f"p{number}" for number in range(8)}
    found = [job.points for job in crash_points.jobs(options(), TRACE, names, 10.0)]
    assert found == [("p0", "p2", "p4", "p6"), ("p1", "p3", "p5", "p7")]


@pytest.mark.parametrize("count", [1, 3, 40])
def test_shards_together_have_every_job_once(count: int) -> None:
    found = crash_points.jobs(options(at="ends", moments=4, queued_moments=7), TRACE, set(), 10.0)
    parts = [crash_points.mine(found, (part, count)) for part in range(1, count + 1)]
    assert sorted(job.number for part in parts for job in part) == [job.number for job in found]


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b"])
def test_a_shard_that_there_is_not_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        crash_points.shard(text)
