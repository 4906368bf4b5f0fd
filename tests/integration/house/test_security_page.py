"""The threat model names a test function for every defence; every test that it names exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "security.md"
#: First columns of tables that state no defence: assets, attackers, what a build does not pin.
WITHOUT = {"asset", "attacker", ""}
#: Headings of paragraphs that state no defence.
OPEN = {"What is protected", "From whom", "Boundaries", "Not covered."}
#: A test function, alone or behind its file.
_FUNCTION = re.compile(r"`((?:[\w/]+\.py::)?test_\w+)`")
#: All that looks like a test or a place of tests, in backticks or not.
_NAMED = re.compile(
    r"(?:[\w/]+\.py::)?\btest_\w+\b(?!\.py|/)|[\w/]*\btest_\w+\.py(?!::)|\btests/[\w/]*\w"
)


@cache
def functions() -> dict[str, list[str]]:
    """Name of a test function or method → the files that define it."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        module = ast.parse(file.read_text("utf-8"))
        bodies = [module.body, *(n.body for n in module.body if isinstance(n, ast.ClassDef))]
        for node in chain.from_iterable(bodies):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
                "test_"
            ):
                found.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
    return found


def wrong(name: str) -> str | None:
    """Return the fault of a name of a test, a file or a folder; None if exactly one is meant."""
    file, _, function = name.rpartition("::") if "::" in name else ("", "", name)
    if function.endswith(".py"):
        places = [*(ROOT / "tests").rglob(Path(function).name)]
        places = [place for place in places if str(place.relative_to(ROOT)).endswith(function)]
    elif function.startswith("tests/"):
        places = [place for place in (ROOT / function,) if place.is_dir()]
    else:
        places = [place for place in functions().get(function, ()) if place.endswith(file)]
    return None if len(places) == 1 else f"{name} is {len(places)} tests"


def _proved(text: str) -> bool:
    """Return True if a text names a test function that exists."""
    return any(wrong(name) is None for name in _FUNCTION.findall(text))


def tables(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield (columns, rows) of every table of a page."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        lines = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in block.split("\n")]
        yield lines[0], lines[2:-1]


def untested(text: str) -> list[str]:
    """Return the rows and paragraphs of a page that state a defence and name no test function.

    A paragraph states one if it begins with a bold heading and leads to no table.
    """
    found = []
    for columns, rows in tables(text):
        if columns[-1] == "test":
            found += [row[0] for row in rows if not _proved(row[-1])]
        elif columns[0] not in WITHOUT:
            found.append(f"the table of {columns[0]} has no tests")
    for heading, said in re.findall(r"^\*\*(.+?)\*\*((?:.+\n)+)", text, re.MULTILINE):
        if heading not in OPEN and not said.endswith(":\n") and not _proved(said):
            found.append(heading)
    return found


def test_every_defence_of_the_threat_model_names_a_test_function() -> None:
    text = PAGE.read_text("utf-8")
    assert untested(text) == []
    assert sum(len(rows) for columns, rows in tables(text) if columns[-1] == "test") > 70
    for heading in ("The store.", "Addresses and keys.", "Containers", "Units", "The image"):
        assert f"\n**{heading}**" in text, "paragraphs that are looked at"


def test_every_test_that_the_page_names_exists_once() -> None:
    names = _NAMED.findall(PAGE.read_text("utf-8"))
    assert len(set(names)) > 130
    assert [told for name in names if (told := wrong(name))] == []


def test_these_checks_can_fail() -> None:
    page = "| an attacker could | now | test |\n|---|---|---|\n| enter | a lock | {} |\n"
    for cell in ("soon", "`test_words.py`", "`tests/unit`", "`test_that_nobody_wrote`"):
        assert untested(page.format(cell)) == ["enter"], cell
    own = "test_security_page.py::test_these_checks_can_fail"
    assert untested(page.format(f"`{own}`")) == []
    assert untested("| an attacker could | now |\n|---|---|\n| enter | a lock |\n") != []
    assert untested("**Doors** have locks.\nKeys, too.\n") == ["Doors"]
    assert untested(f"**Doors** have locks.\nKeys, too (`{own}`).\n") == []
    assert untested("**Not covered.** Windows.\n") == []


def test_a_name_is_found_wherever_it_stands() -> None:
    text = f"`tests/unit/x/test_a.py` test_b, `tests/no` ({'tests/c/test_d.py'}::test_e), test_f.py."
    names = ["tests/unit/x/test_a.py", "test_b", "tests/no", "tests/c/test_d.py::test_e", "test_f.py"]
    assert _NAMED.findall(text) == names
    assert all(map(wrong, names))
    assert wrong("test_that_nobody_wrote") == "test_that_nobody_wrote is 0 tests"
    assert wrong("test_security_page.py") is None
    assert wrong("tests/integration/house") is None
    assert wrong("test_words.py::test_these_checks_can_fail") is not None
