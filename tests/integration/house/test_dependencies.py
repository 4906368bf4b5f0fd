"""Declared dependencies: all that the shipped packages import, in an extra if it is imported late.

The fresh environment of tests/acceptance/deployment/test_packaging.py borrows this one's packages:
an undeclared one is there because another needs it, until that one no longer does.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from testing.house_counts import PRODUCT

ROOT = Path(__file__).resolve().parents[3]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
#: Rooms whose modules may import an extra at once, because they are imported late themselves.
LATE = {"api/mcp": "agent_forge.api.mcp"}


def plain(name: str) -> str:
    """A distribution's name as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def names_of(texts: list[str]) -> set[str]:
    """The distributions of requirements."""
    return {plain(Requirement(text).name) for text in texts}


CORE = names_of(PROJECT["project"]["dependencies"])
EXTRA = {
    name
    for extra, texts in PROJECT["project"]["optional-dependencies"].items()
    if extra not in ("dev", "docs")
    for name in names_of(texts)
}


def imports(node: ast.AST, at_once: bool = True) -> Iterator[tuple[str, bool]]:
    """(module, whether it is imported as soon as its file is) of every import in a syntax tree."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.Import):
            yield from ((alias.name, at_once) for alias in inner.names)
        elif isinstance(inner, ast.ImportFrom) and inner.level == 0:
            yield from ((f"{inner.module}.{alias.name}", at_once) for alias in inner.names)
        late = isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        late = late or (isinstance(inner, ast.If) and "TYPE_CHECKING" in ast.unparse(inner.test))
        yield from imports(inner, at_once and not late)


@cache
def shipped() -> list[tuple[str, str, bool]]:
    """(file, what is imported, whether at once) of every import of the shipped packages."""
    return [
        (file.relative_to(ROOT).as_posix(), *found)
        for package in PRODUCT
        for file in sorted((ROOT / package).rglob("*.py"))
        for found in imports(ast.parse(file.read_text("utf-8")))
    ]


def test_every_package_that_is_imported_is_declared() -> None:
    """Extras only late: without them the rest must be importable."""
    installed = packages_distributions()
    seen = set()
    for where, module, at_once in shipped():
        top = module.partition(".")[0]
        if top == "agent_forge" or top in sys.stdlib_module_names:
            continue
        # A package that is not installed here is taken for one of the same name.
        owners = {plain(name) for name in installed.get(top, [top])}
        seen |= owners
        if owners & CORE:
            continue
        assert owners & EXTRA, f"{where}: {top} is of {owners}: declare it in pyproject.toml"
        late = not at_once or any(where.startswith(f"{room}/") for room in LATE)
        assert late, f"{where} imports {top}, of an extra, at once"
    assert {"numpy", "starlette", "mcp"} <= seen


def test_what_imports_an_extra_at_once_is_imported_late() -> None:
    """`forge serve` works without `mcp`."""
    for room, package in LATE.items():
        asked = [
            (where, at_once)
            for where, module, at_once in shipped()
            if f"{module}.".startswith(f"{package}.") and not where.startswith(f"{room}/")
        ]
        assert asked, f"nothing imports {package}"
        assert [where for where, at_once in asked if at_once] == []
