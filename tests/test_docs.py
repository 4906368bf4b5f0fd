"""The generated pages of docs/ say what the code says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SPEC = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
assert SPEC is not None
assert SPEC.loader is not None
generate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate)


@pytest.mark.parametrize("name", generate.PAGES)
def test_a_generated_page_is_current(name: str) -> None:
    """`make docs` writes it again."""
    assert (ROOT / "docs" / name).read_text("utf-8") == generate.PAGES[name]()


def test_every_module_is_on_the_map() -> None:
    """A module without a docstring would be a row without a word."""
    rows = [line for line in generate.module_map().splitlines() if line.startswith("| `")]
    assert len(rows) > 250
    assert not [row for row in rows if row.endswith("|  |")]
