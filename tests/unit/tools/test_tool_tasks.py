"""Tool tasks: keyed, in slices that never overlap; the right answer counts and no other."""

from __future__ import annotations

import pytest

from agent_forge.runs.errors import ConfigError
from agent_forge.tools.tasks import FAMILIES, digest, item, items, runs_programs
from agent_forge.tools.tasks.base import LEVELS, right


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_an_item_is_a_function_of_its_key(family: str) -> None:
    for level in (1, LEVELS):
        assert item(family, level, 3, 5) == item(family, level, 3, 5)
        assert item(family, level, 3, 5) != item(family, level, 3, 6)
        one = item(family, level, 3, 5)
        assert len(one.calls) == len(one.questions)
        assert {call.tool for some in one.calls for call in some} <= set(one.tools)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_slices_do_not_overlap(family: str) -> None:
    found = {on: items(family, 2, 0, on, 24) for on in ("train", "selection", "test")}
    asked = {on: {(one.questions, one.answer) for one in some} for on, some in found.items()}
    assert all(len(asked[on]) == len(found[on]) == 24 for on in asked)
    assert not asked["train"] & asked["test"]
    assert not asked["selection"] & (asked["train"] | asked["test"])
    assert {one.level for one in found["test"]} == {1, 2}
    assert digest({"a": found["test"]}) != digest({"a": found["train"]})


def test_the_answer_alone_counts() -> None:
    assert right("22", " 22\n")
    assert right("22", "That is easy. Answer: 22.")
    assert right("a b", "ab")
    assert not right("22", "It is 22")
    assert not right("22", "")


def test_unknown_families_and_levels_are_refused() -> None:
    with pytest.raises(ConfigError, match="no tool tasks 'poetry': there are calculation"):
        item("poetry", 1, 0, 0)
    with pytest.raises(ValueError, match="levels 1 to 5"):
        item("table", 6, 0, 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_runs_programs_if_its_items_need_the_sandbox(family: str) -> None:
    assert runs_programs(family) == item(family, 1, 0, 0).needs_sandbox
