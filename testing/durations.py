"""Test durations: measured, written to a file, summed, and held to the budget of a lane.

`FORGE_TEST_BUDGET` is what the tests of a session may take, in processor seconds of a machine that
needs `UNIT` for a fixed piece of work. Every process does that work again and again between its tests,
so neither a slow nor a busy machine fails a session, and a slow test cannot slip in.
`FORGE_TEST_DURATIONS` names the file that the durations are written to, as JSON: test → seconds,
processor seconds. The processor's are those of pytest's process and of processes that the test started
and waited for.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

#: Test → seconds of its set-up, call and tear-down.
SECONDS: dict[str, float] = defaultdict(float)
#: Test → processor seconds of the three.
PROCESSOR: dict[str, float] = defaultdict(float)
#: Processor seconds of the fixed piece of work, one for each time it was done.
WORK: list[float] = []
#: The same on the machine that budgets are for, and tests of a process between two times.
UNIT, EVERY = 0.02, 50
#: Tests that are printed at the end.
SLOWEST = 10
#: Tests that this process has begun.
_begun = 0
#: Processor seconds when the last phase of a test had ended.
_before = 0.0


def _processor() -> float:
    """Return the processor seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def fixed_work() -> float:
    """Return the processor seconds of a fixed piece of work, which no measurement of coverage slows."""
    began = time.process_time()
    rows = json.dumps([[number, number / 7, str(number)] for number in range(2_000)])
    for _ in range(10):
        rows = json.dumps(json.loads(rows))
    return time.process_time() - began


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    """Begin to count the processor seconds of a test."""
    global _before
    _before = _processor()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Write the processor seconds since the report before into a report; now and then a `work`."""
    global _before, _begun
    report = yield
    report.processor = _processor() - _before
    if report.when == "setup":
        if _begun % EVERY == 0:
            report.work = fixed_work()
        _begun += 1
    _before = _processor()
    return report


def pytest_runtest_logreport(report: Any) -> None:
    """Add one phase of one test; with several workers this runs where reports arrive."""
    SECONDS[report.nodeid] += report.duration
    PROCESSOR[report.nodeid] += getattr(report, "processor", 0.0)  # none if pytest's process died
    if work := getattr(report, "work", None):
        WORK.append(work)


def scale() -> float:
    """Return the factor from processor seconds here to those that budgets are in."""
    return UNIT / fmean(WORK) if WORK else 1.0


def over_budget() -> str:
    """Return why the session is too slow, or an empty string."""
    budget = float(os.environ.get("FORGE_TEST_BUDGET") or 0)
    total = sum(PROCESSOR.values()) * scale()
    if not budget or total <= budget:
        return ""
    return (
        f"The tests took {total:.0f} processor seconds, at the speed that budgets are for; this lane "
        f"may take {budget:.0f}. Make the slowest faster, or move them to a later lane "
        "(CONTRIBUTING.md)."
    )


def pytest_sessionfinish(session: Any) -> None:
    """Write the durations, and fail a session that is over its budget."""
    if hasattr(session.config, "workerinput"):
        return  # a worker's reports are counted by its controller
    if file := os.environ.get("FORGE_TEST_DURATIONS"):
        slowest = sorted(SECONDS.items(), key=lambda row: -row[1])
        rows = ((name, [round(s, 3), round(PROCESSOR[name], 3)]) for name, s in slowest)
        lines = ",\n".join(f"{json.dumps(name)}: {found}" for name, found in rows)
        Path(file).write_text(f"{{{lines}}}\n", "utf-8")
    if over_budget() and session.exitstatus == 0:
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the slowest tests, the sums, and the budget if the session is over it."""
    slowest = sorted(SECONDS.items(), key=lambda row: -row[1])[:SLOWEST]
    processor = sum(PROCESSOR.values())
    terminalreporter.section(
        f"{sum(SECONDS.values()):.0f} s in all tests, {processor:.0f} s of processor time, "
        f"{processor * scale():.0f} s of it at the speed that budgets are for; the slowest"
    )
    for name, seconds in slowest:
        terminalreporter.line(f"{seconds:8.1f} s {PROCESSOR[name]:8.1f} s  {name}")
    if why := over_budget():
        terminalreporter.line(why, red=True)
