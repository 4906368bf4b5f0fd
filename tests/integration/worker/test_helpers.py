"""Processes beside the terminal's: they carry its run on, stop with it, and share its cores."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from agent_forge.runs.errors import ConfigError
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home, processes, threads
from agent_forge.worker.tasks import helpers
from testing.toy import toy_runs
from testing.toy.toy_kind import KNOWN
from testing.waiting import wait_until
from tests.integration.cli.test_forge import call


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home whose helpers know the toy kind."""
    monkeypatch.setenv("FORGE_KINDS", KNOWN)
    return Home(tmp_path / "home")


def test_helpers_alone_carry_a_run_to_its_end(home: Home) -> None:
    """Nothing is done in this process."""
    toy_runs.submit(home, steps=3, width=4)
    with helpers.beside(home, "r", 2):
        wait_until(lambda: toy_runs.state(home).ended, "the run ends")
    assert toy_runs.state(home).status == "completed"
    assert audit.audit(toy_runs.rows(home)) == []


def test_helpers_end_when_the_terminal_stops_and_the_run_goes_on(home: Home) -> None:
    """After the task under way; what they had done is not done again."""
    toy_runs.submit(home, steps=500, width=2, slow=0.05)
    with helpers.beside(home, "r", 2):
        wait_until(lambda: toy_runs.state(home).version > 6, "the run goes on")
    left = toy_runs.rows(home)
    time.sleep(0.3)
    assert toy_runs.rows(home) == left, "somebody works still"
    assert not toy_runs.state(home).ended
    toy_runs.carry_until(home, lambda state: state.version > len(left))
    assert toy_runs.rows(home)[: len(left)] == left


def test_a_run_at_the_terminal_is_shared(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same result as alone, by any number of processes."""
    monkeypatch.setenv("FORGE_PROCESSES", "3")
    out = str(home.folder.with_name("out"))
    done = call(
        home.folder, "start", "toy", "--set", "steps=3", "--set", "slow=0.1", "--output-dir", out
    )
    assert done.exit_code == 0, done.output
    alone = Home(home.folder.with_name("alone"))
    monkeypatch.delenv("FORGE_PROCESSES")
    out = str(home.folder.with_name("out-alone"))
    assert (
        call(
            alone.folder, "start", "toy", "--set", "steps=3", "--set", "slow=0.1", "--output-dir", out
        ).exit_code
        == 0
    )
    ends = []
    for one in (home, alone):
        with closing(one.open_store()) as store:
            (name,) = store.names()
        ends.append(toy_runs.state(one, name.partition("/")[2]).lineage_digest())
    assert ends[0] == ends[1]


def test_each_has_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """An own number of threads stays; nonsense is refused with the variable's name."""
    cores = len(os.sched_getaffinity(0))
    monkeypatch.delenv("FORGE_THREADS", raising=False)
    assert (processes(), threads()) == (1, None)
    monkeypatch.setenv("FORGE_PROCESSES", str(cores))
    assert (processes(), threads()) == (cores, 1 if cores > 1 else None)
    monkeypatch.setenv("FORGE_THREADS", "7")
    assert threads() == 7
    monkeypatch.setenv("FORGE_PROCESSES", "many")
    with pytest.raises(ConfigError, match="FORGE_PROCESSES is 'many': give a number of processes"):
        processes()
