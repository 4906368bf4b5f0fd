"""The threat model names a test for every row, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "security.md"
#: First columns of tables that state no defence: assets, attackers, what a build does not pin.
WITHOUT = {"asset", "attacker", ""}
_NAMED = re.compile(r"`((?:[\w/]+\.py::)?test_\w+|[\w/]*test_\w+\.py)`")


@cache
def functions() -> dict[str, list[str]]:
    """Name of a test → the files that define it."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            kinds = ast.FunctionDef | ast.AsyncFunctionDef
            if isinstance(node, kinds) and node.name.startswith("test_"):
                found.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
    return found


def wrong(name: str) -> str | None:
    """Return the fault of a name of a test; None if exactly one test is meant."""
    file, _, function = name.rpartition("::") if "::" in name else ("", "", name)
    if function.endswith(".py"):
        places = [*(ROOT / "tests").rglob(Path(function).name)]
        places = [place for place in places if str(place.relative_to(ROOT)).endswith(function)]
    else:
        places = [place for place in functions().get(function, ()) if place.endswith(file)]
    return None if len(places) == 1 else f"{name} is {len(places)} tests"


def tables(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield (columns, rows) of every table of a page."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        lines = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in block.split("\n")]
        yield lines[0], lines[2:-1]


def untested(text: str) -> list[str]:
    """The rows of a page that state a defence and name no test."""
    found = []
    for columns, rows in tables(text):
        if columns[-1] == "test":
            found += [row[0] for row in rows if not _NAMED.search(row[-1])]
        elif columns[0] not in WITHOUT:
            found.append(f"the table of {columns[0]} has no tests")
    return found


def test_every_row_of_the_threat_model_names_a_test() -> None:
    text = PAGE.read_text("utf-8")
    assert untested(text) == []
    assert sum(len(rows) for columns, rows in tables(text) if columns[-1] == "test") > 60


def test_every_test_that_the_page_names_exists_once() -> None:
    names = _NAMED.findall(PAGE.read_text("utf-8"))
    assert len(set(names)) > 80
    assert [told for name in names if (told := wrong(name))] == []


def test_these_checks_can_fail() -> None:
    page = "| an attacker could | now | test |\n|---|---|---|\n| enter | a lock | soon |\n"
    assert untested(page) == ["enter"]
    assert untested("| an attacker could | now |\n|---|---|\n| enter | a lock |\n") != []
    assert wrong("test_that_nobody_wrote") == "test_that_nobody_wrote is 0 tests"
    assert wrong("test_security_page.py") is None
    assert wrong("test_security_page.py::test_these_checks_can_fail") is None
    assert wrong("test_words.py::test_these_checks_can_fail") is not None
