"""The counts of the house only go down."""

from __future__ import annotations

import json

from testing import house_counts


def test_no_count_is_above_its_limit() -> None:
    """A count that has grown is made smaller, here or elsewhere, before it lands."""
    limits = json.loads(house_counts.LIMITS.read_text("utf-8"))
    assert house_counts.above(house_counts.counts(), limits) == []


def test_the_counts_can_fail() -> None:
    found = house_counts.counts()
    assert found["files of the product"] > 100
    name = "lines of the product"
    lower = {name: found[name] - 1}
    assert house_counts.above(found, lower) == [f"{name}: {found[name]:,} is above {lower[name]:,}."]


def test_a_class_name_of_two_modules_is_counted_unless_it_is_shared() -> None:
    texts = [
        "class Row: ...\nclass Params: ...",
        "class Row: ...\nclass Params: ...",
        "class Table: ...",
    ]
    assert house_counts.several(texts) == ["Row"]
