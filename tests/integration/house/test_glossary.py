"""docs/glossary.md is sorted, says something of each term, and names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"\| ([^|]+) \| ([^|]+) \| `([^`|]+)` \|")


def entries(page: str) -> list[tuple[str, str, str]]:
    """Return term, meaning and file of each row below the table's head. Raise ValueError."""
    found = []
    for line in page.split("|---|---|---|\n")[1].splitlines():
        row = ROW.fullmatch(line)
        if row is None:
            raise ValueError(f"no row of a term: {line}")
        found.append((row[1], row[2], row[3]))
    return found


PAGE = entries((ROOT / "docs" / "glossary.md").read_text("utf-8"))


def test_the_terms_are_sorted_and_each_stands_once() -> None:
    """A reader looks a term up, and does not search."""
    terms = [term.lower() for term, _, _ in PAGE]
    assert terms == sorted(set(terms))


@pytest.mark.parametrize(("term", "meaning", "file"), PAGE, ids=[term for term, _, _ in PAGE])
def test_a_term_has_a_meaning_and_a_file_that_exists(term: str, meaning: str, file: str) -> None:
    """A module that moves takes its term along."""
    assert (ROOT / file).is_file()
    assert meaning.endswith(".")
    assert len(meaning) > len(term)


def test_a_line_that_is_no_row_is_found() -> None:
    """A term without a file would pass unseen otherwise."""
    with pytest.raises(ValueError, match="no row of a term"):
        entries("|---|---|---|\n| elite | One of the best. |\n")
