"""A lane that takes more than its budget fails, whatever the speed of the machine."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testing import durations


@pytest.mark.parametrize(
    ("budget", "slower", "fails"),
    [("6", 1, True), ("7", 1, False), ("0", 1, False), ("6", 2, False), ("3", 2, True)],
)
def test_a_session_over_its_budget_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: str, slower: float, fails: bool
) -> None:
    """Six and a half processor seconds, in three phases of two tests; the file has each test's sums.

    A machine on which the fixed work takes twice as long takes twice as long for the tests, too.
    """
    for name in ("SECONDS", "PROCESSOR"):
        monkeypatch.setattr(durations, name, defaultdict(float))
    monkeypatch.setattr(durations, "WORK", [])
    monkeypatch.setenv("FORGE_TEST_BUDGET", budget)
    monkeypatch.setenv("FORGE_TEST_DURATIONS", str(tmp_path / "seconds.json"))
    for name, seconds, work in (("a", 0.5, 0.5), ("a", 2.0, None), ("b", 4.0, 1.5)):
        report = SimpleNamespace(nodeid=name, duration=2 * seconds, processor=seconds)
        if work is not None:
            report.work = slower * work * durations.UNIT
        durations.pytest_runtest_logreport(report)
    session: Any = SimpleNamespace(config=SimpleNamespace(), exitstatus=0)
    durations.pytest_sessionfinish(session)
    assert bool(session.exitstatus) == fails
    assert (tmp_path / "seconds.json").read_text() == '{"b": [8.0, 4.0],\n"a": [5.0, 2.5]}\n'


def test_the_fixed_work_is_measured_and_takes_time() -> None:
    assert durations.fixed_work() > 0
