"""A pipeline together with its runs, as a terminal shows it: failures, forks, moments."""

from __future__ import annotations

import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_forge.runs.errors import NotFoundError, RunFailedError
from agent_forge.runs.history.run_cache import Journals, RunCache
from agent_forge.runs.home import Home
from agent_forge.runs.kinds import view
from agent_forge.worker.commands.fork import fork, plan
from testing.toy import toy_pipelines, toy_runs
from testing.toy.toy_pipelines import phase
from tests.integration.cli.test_forge import succeeds


def call(home: Home, *words: str) -> str:
    """Return what a command prints."""
    return succeeds(home, *words).output


def overview(home: Home, run: str, upto: int | None = None) -> dict[str, Any]:
    """Return name → panel of a run together with the runs that it delegates."""
    with closing(home.open_store()) as store:
        cache = RunCache(store, showing=True)
        journals = Journals(store, cache)
        place = None if upto is None else journals.place(run, upto)
        with cache.reading(run, place) as state, journals.children(state, upto) as children:
            seen = view.overview(state, (), children)
    return {panel.name: panel for panel in seen.panels}


def test_failed_attempts_are_marked_in_time_and_the_phase_has_failed(home: Home) -> None:
    """Three attempts, and then the run: each where it was, in its own row and in its process's."""
    toy_pipelines.submit(home, [phase("first", failing="count/0/1"), phase("second")])
    with pytest.raises(RunFailedError):
        toy_runs.finish(home, "p")
    seen = overview(home, "p")
    assert [stage.state for stage in seen["strip"].stages] == ["failed", "waiting"]
    runs, device = seen["timeline"].lanes
    assert (runs.bars[0].state, runs.bars[0].run) == ("failed", "p.1-first")
    failed = [bar.name for bar in device.bars if bar.state == "failed"]
    assert failed == ["1 first: count slot 1 of step 0"] * 3
    assert seen["timeline"].says.endswith("3 attempts failed.")
    told = call(home, "show", "p")
    assert re.search(r"\n1 first +toy +✗ failed\n2 second +toy +· waiting\n", told)
    assert call(home, "show", "p", "--panel", "timeline").splitlines()[1].endswith("x")
    table = call(home, "show", "p", "--panel", "timeline", "--format", "csv")
    assert sum("failed,p.1-first" in row for row in table.splitlines()) == 7  # with the run itself


def test_a_fork_shows_the_runs_that_it_keeps_and_its_own(honest_home: Home, tmp_path: Path) -> None:
    """A kept run is the first pipeline's: it was asked for by that one."""
    home = Home(Path(shutil.copytree(honest_home.folder, tmp_path / "home")))
    with closing(home.open_store()) as store:
        branch = fork(store, plan(store, "p", None, 2, {"second.steps": 1}))
    toy_runs.finish(home, branch)
    own = f"{branch}.2-second"
    stages = overview(home, branch)["strip"].stages
    assert [stage.runs for stage in stages] == [("p.1-first",), (own,)]
    assert [lane.name for lane in overview(home, branch)["timeline"].lanes][:2] == [
        "1 first",
        "2 second",
    ]
    with closing(home.open_store()) as store:
        journals = Journals(store, RunCache(store, showing=True))
        assert journals.parent("p.1-first") == "p"
        assert journals.parent(own) == branch
        began = journals.lines(own)[0].position
        with pytest.raises(NotFoundError, match=f"had not begun at position {began - 1} of the log"):
            journals.place(own, began - 1)
    assert [stage.state for stage in overview(home, branch, began)["strip"].stages] == [
        "ended",
        "waiting",
    ]


def test_events_are_read_once_and_new_ones_are_added(home: Home) -> None:
    """A page asks every second: what was read stays, in the order of the log."""
    toy_pipelines.submit(home)
    with closing(home.open_store()) as store:
        journals = Journals(store, RunCache(store, showing=True))
        before = journals.lines("p")
        toy_runs.finish(home, "p")
        after = journals.lines("p")
        assert after[: len(before)] == before
        assert [line.place for line in after] == list(range(1, len(after) + 1))
        fresh = Journals(store, RunCache(store, showing=True)).lines("p")
        assert after == fresh
        assert [line.type for line in after] == [row.type for row in toy_runs.rows(home, "p")]


def test_a_pipeline_of_many_phases_fits_a_screen(home: Home) -> None:
    """Head and a line a phase, at eighty columns; the gates, as many as there are, by their panel."""
    gate = {"metric": "total", "at_least": 1}
    phases = [{**phase(f"phase-{n}", seed=n), "gates": [gate] * 4} for n in range(1, 10)]
    toy_pipelines.submit(home, phases)
    toy_runs.finish(home, "p")
    lines = call(home, "show", "p").splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    rows = [
        line for line in lines if re.match(r"\d phase-\d +toy +✓ ended; 4 gates pass; total ", line)
    ]
    assert len(rows) == 9
    assert "gates" in next(line for line in lines if line.startswith("more "))
    assert call(home, "show", "p", "--panel", "gates").count("pass") >= 36
