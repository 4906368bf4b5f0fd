"""No test depends on the machine's pace, or on a set's order: as far as its text shows."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
#: Functions of a clock, and functions whose argument is how long to wait at most.
CLOCKS = {"monotonic", "perf_counter", "time", "process_time"}
WAITS = {"communicate", "wait", "set_default_timeout", "set_default_navigation_timeout"}
#: The variable that cuts trainings by the pace of the machine.
BY_PACE = "FORGE_SEGMENT_SECONDS"
#: Files whose subject is one of these.
SUBJECT = {"tests/integration/house/test_pace.py", "tests/unit/runs/test_segments.py"}


def number(node: ast.expr | None) -> bool:
    """Return True if an expression is a number of its own, other than 0."""
    return isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value != 0


def asked_clock(node: ast.AST) -> bool:
    """Return True if a clock is read somewhere in an expression."""
    return any(
        isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr in CLOCKS
        and isinstance(part.func.value, ast.Name)
        and part.func.value.id == "time"
        for part in ast.walk(node)
    )


def elapsed(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of assertions on a clock."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and asked_clock(node.test):
            yield node.lineno


def limits(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of waits that have a limit of their own instead of `PATIENCE`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if any(word.arg == "timeout" and number(word.value) for word in node.keywords):
            yield node.lineno
        if not isinstance(node.func, ast.Attribute):
            continue
        name, first = node.func.attr, next(iter(node.args), None)
        if name in WAITS and number(first):
            yield node.lineno
        if name == "wait_for" and len(node.args) == 2 and number(node.args[1]):
            yield node.lineno


def health(tree: ast.AST) -> Iterator[int]:
    """Yield the lines where hypothesis is told which checks to leave out, and not `too_slow`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "suppress_health_check":
            listed = ast.unparse(node.value)
            if "too_slow" not in listed and listed != "list(HealthCheck)":
                yield node.value.lineno


def by_pace(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that name the variable `BY_PACE`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value == BY_PACE:
            yield node.lineno


def order_of_a_set(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of test parameters in the order of a set, which differs between processes."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("parametrize")):
            continue
        iterated = [
            part.value if isinstance(part, ast.Starred) else part.iter
            for part in ast.walk(node)
            if isinstance(part, ast.Starred | ast.comprehension)
        ]
        iterated += [value for value in node.args[1:] if not isinstance(value, ast.List)]
        for value in iterated:
            if "set(" in ast.unparse(value) and "sorted(" not in ast.unparse(value):
                yield node.lineno


#: Rule → what to do instead.
REMEDIES = {
    elapsed: "assert on what happens, by a clock of the test's own if need be",
    limits: "take `PATIENCE` or `wait_until` of `testing.waiting`",
    by_pace: "set FORGE_SEGMENT_STEPS",
    health: "add HealthCheck.too_slow, which the list takes the place of",
    order_of_a_set: "sort the set, so that all of xdist's workers collect the same tests",
}


def test_no_test_depends_on_the_pace_of_the_machine_or_the_order_of_a_set() -> None:
    places = []
    for file in sorted(file for top in ("tests", "testing") for file in (ROOT / top).rglob("*.py")):
        name = file.relative_to(ROOT).as_posix()
        if name not in SUBJECT:
            tree = ast.parse(file.read_text("utf-8"))
            for look, remedy in REMEDIES.items():
                places += [f"{name}:{line}: {remedy}" for line in look(tree)]
    assert not places, "\n".join(places)


@pytest.mark.parametrize(
    ("look", "code"),
    [
        (elapsed, "assert time.monotonic() - began < 10"),
        (elapsed, "assert expires > time.time(), 'soon'"),
        (limits, "subprocess.run(command, timeout=120)"),
        (limits, "process.communicate(60)"),
        (limits, "page.set_default_timeout(90_000)"),
        (limits, "await asyncio.wait_for(task, 20)"),
        (health, "settings(suppress_health_check=[HealthCheck.function_scoped_fixture])"),
        (by_pace, "monkeypatch.setenv('FORGE_SEGMENT_SECONDS', '0.5')"),
        (order_of_a_set, "pytest.mark.parametrize('name', [*(set(WAYS) - {'smollm'})])"),
    ],
)
def test_what_is_forbidden_is_seen(look: Callable[[ast.AST], Iterator[int]], code: str) -> None:
    """And what stands in its place is not."""
    assert list(look(ast.parse(code))) == [1]
    for fine in (
        "assert now[0] - began < 10",
        "process.communicate(timeout=PATIENCE)",
        "sqlite3.connect(path, timeout=0)",
        "thread.join(0.1)",
        "settings(suppress_health_check=[HealthCheck.too_slow])",
        "monkeypatch.setenv('FORGE_SEGMENT_STEPS', '40')",
        "pytest.mark.parametrize('name', [*sorted(set(WAYS) - {'smollm'})])",
    ):
        assert list(look(ast.parse(fine))) == []
