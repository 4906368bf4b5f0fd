"""A lane that takes longer than its budget fails."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testing import durations


@pytest.mark.parametrize(("budget", "fails"), [("6", True), ("7", False), ("0", False)])
def test_a_session_over_its_budget_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: str, fails: bool
) -> None:
    """Six and a half seconds in three phases of two tests; the file has each test's sum."""
    monkeypatch.setattr(durations, "SECONDS", defaultdict(float))
    monkeypatch.setenv("FORGE_TEST_BUDGET", budget)
    monkeypatch.setenv("FORGE_TEST_DURATIONS", str(tmp_path / "seconds.json"))
    monkeypatch.setattr(durations, "PROCESSOR", defaultdict(float))
    for name, seconds in (("a", 0.5), ("a", 2.0), ("b", 4.0)):
        report = SimpleNamespace(nodeid=name, duration=seconds, processor=seconds / 2)
        durations.pytest_runtest_logreport(report)
    session: Any = SimpleNamespace(config=SimpleNamespace(), exitstatus=0)
    durations.pytest_sessionfinish(session)
    assert bool(session.exitstatus) == fails
    assert (tmp_path / "seconds.json").read_text() == '{"b": [4.0, 2.0],\n"a": [2.5, 1.25]}\n'
