"""Test durations: written to a file, summed, and held to the budget of a lane.

`FORGE_TEST_BUDGET` is what the durations of a session may sum to, in seconds over all workers. A
session that takes more fails, so that a slow test cannot slip in. `FORGE_TEST_DURATIONS` names the file
that the durations are written to, as JSON: test → seconds.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

#: Test → seconds of its set-up, call and tear-down.
SECONDS: dict[str, float] = defaultdict(float)
#: Tests that are printed at the end.
SLOWEST = 10


def pytest_runtest_logreport(report: Any) -> None:
    """Add one phase of one test; with several workers this runs where reports arrive."""
    SECONDS[report.nodeid] += report.duration


def over_budget() -> str:
    """Return why the session is too slow, or an empty string."""
    budget, total = float(os.environ.get("FORGE_TEST_BUDGET") or 0), sum(SECONDS.values())
    if not budget or total <= budget:
        return ""
    return (
        f"The tests took {total:.0f} s in all; this lane may take {budget:.0f} s. Make the slowest "
        "faster, or move them to a later lane (CONTRIBUTING.md)."
    )


def pytest_sessionfinish(session: Any) -> None:
    """Write the durations, and fail a session that is over its budget."""
    if hasattr(session.config, "workerinput"):
        return  # a worker's reports are counted by its controller
    if file := os.environ.get("FORGE_TEST_DURATIONS"):
        rows = {name: round(s, 3) for name, s in sorted(SECONDS.items(), key=lambda row: -row[1])}
        Path(file).write_text(json.dumps(rows, indent=0) + "\n", "utf-8")
    if over_budget() and session.exitstatus == 0:
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the slowest tests, the sum, and the budget if the session is over it."""
    slowest = sorted(SECONDS.items(), key=lambda row: -row[1])[:SLOWEST]
    terminalreporter.section(f"{sum(SECONDS.values()):.0f} s in all tests; the slowest")
    for name, seconds in slowest:
        terminalreporter.line(f"{seconds:8.1f} s  {name}")
    if why := over_budget():
        terminalreporter.line(why, red=True)
