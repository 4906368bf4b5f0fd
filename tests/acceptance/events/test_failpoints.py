"""Failpoints: real kills in real processes, and the trace by which the crash tests find them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_forge.events import failpoints
from testing.waiting import PATIENCE

#: The module alone, without the package and its database libraries: a process in milliseconds.
_WALK = """
import runpy, sys
hit = runpy.run_path(sys.argv[1])["hit"]
for name in "a b a b c a".split():
    print(name, flush=True)
    hit(name)
"""

_REARM = """
import runpy, sys
module = runpy.run_path(sys.argv[1])
for word, setting in [("before", ""), ("after", "kill:2")]:
    if setting:
        module["arm"](setting)
    for _ in range(2):
        print(word, flush=True)
        module["hit"]("a")
print("survived", flush=True)
"""


def walk(setting: str | None, program: str = _WALK) -> subprocess.CompletedProcess[str]:
    """A process that prints the name of each failpoint and then passes it."""
    env = {name: value for name, value in os.environ.items() if name != "FORGE_FAILPOINTS"}
    if setting is not None:
        env["FORGE_FAILPOINTS"] = setting
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, failpoints.__file__],
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """No failpoint is left armed for the tests that follow."""
    yield
    failpoints.arm("")


@pytest.mark.parametrize("setting", [None, ""])
def test_failpoints_are_off_unless_asked_for(setting: str | None) -> None:
    """They are in the code that users run."""
    end = walk(setting)
    assert end.returncode == 0
    assert end.stdout.split() == ["a", "b", "a", "b", "c", "a"]


def test_processes_are_killed_once_at_each_failpoint_that_has_a_file(tmp_path: Path) -> None:
    """One file, one kill: the next process passes, until it comes to another name."""
    for name in ("b", "c", "d"):
        (tmp_path / name).touch()
    ends = [walk(f"each:{tmp_path}") for _ in range(3)]
    assert [end.returncode for end in ends] == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert [end.stdout.split()[-1] for end in ends] == ["b", "c", "a"]
    assert [file.name for file in tmp_path.iterdir()] == ["d"], "a failpoint that is never passed"


@pytest.mark.parametrize(
    ("setting", "passed"),
    [
        ("kill:1", "a"),
        ("kill:4", "a b a b"),
        ("kill:b:1", "a b"),
        ("kill:a:3", "a b a b c a"),
        ("kill:c:1", "a b a b c"),
    ],
)
def test_the_process_is_killed_at_the_hit_that_was_named(setting: str, passed: str) -> None:
    """SIGKILL runs no handler and flushes nothing: it is what a power cut looks like."""
    end = walk(setting)
    assert end.returncode == -signal.SIGKILL
    assert end.stdout.split() == passed.split()


@pytest.mark.parametrize("setting", ["kill:7", "kill:a:4", "kill:elsewhere:1"])
def test_a_hit_that_never_comes_kills_nothing(setting: str) -> None:
    """The crash tests end their walk when a process survives it."""
    end = walk(setting)
    assert end.returncode == 0
    assert end.stdout.split() == ["a", "b", "a", "b", "c", "a"]


def test_a_trace_names_every_hit_in_order(tmp_path: Path) -> None:
    """It tells the crash tests how many places there are to kill at."""
    trace = tmp_path / "a:b" / "trace"
    trace.parent.mkdir()
    assert walk(f"trace:{trace}").returncode == 0
    assert walk(f"trace:{trace}").returncode == 0
    assert trace.read_text().split() == ["a", "b", "a", "b", "c", "a"] * 2


def test_arm_does_what_the_variable_would(tmp_path: Path) -> None:
    """Tests that fork set it after the import."""
    trace = tmp_path / "trace"
    failpoints.arm(f"trace:{trace}")
    failpoints.hit("one")
    failpoints.arm("kill:elsewhere:1")
    failpoints.hit("two")
    failpoints.arm("")
    failpoints.hit("three")
    assert trace.read_text() == "one\n"


def test_arm_counts_from_the_beginning() -> None:
    """Hits before it must not bring the kill forward, nor carry the count past it."""
    end = walk("kill:a:9", _REARM)
    assert end.returncode == -signal.SIGKILL
    assert end.stdout.split() == ["before", "before", "after", "after"]
