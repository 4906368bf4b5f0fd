"""Figures of tasks that are solved, by hand."""

from __future__ import annotations

import pytest

from agent_forge.phases.experts import figures
from agent_forge.studies.events import Observed


def seen(add: list[float], copy: list[float]) -> Observed:
    """Shares of two families that a model solves."""
    items = {"add": tuple(add), "copy": tuple(copy)}
    return Observed(
        recipe_id="0" * 64,
        measure="exact-answers@1",
        on="test",
        values={family: sum(some) / len(some) for family, some in items.items()},
        items=items,
        sizes={family: (1,) * len(some) for family, some in items.items()},
        seconds=0.0,
    )


SEEN = {
    "given": seen([0, 0, 0, 1], [0, 1]),
    "only-add": seen([1, 1, 0, 1], [0, 0]),
    "mixtures": seen([1, 1, 1, 1], [1, 1]),
}


def test_shares_are_means_over_families_and_gains_are_in_the_own_family() -> None:
    found = figures.solved_figures(["add"], SEEN, "mixtures")
    assert set(found) == {"solved", "solved_given", "solved_own"}  # no adapters beside
    assert (found["solved"].value, found["solved"].low) == (1.0, 1.0)
    assert found["solved_given"].value == pytest.approx((0.25 + 0.5) / 2)
    assert found["solved_own"].value == pytest.approx(0.75 - 0.25)
    assert (found["solved_own"].low, found["solved_own"].high) == (0.0, 1.0)  # of four tasks
    assert found["solved_own"].n == 4
    assert figures.solved_shares(SEEN)["only-add"]["copy"].value == 0.0


def test_without_families_nothing_is_told() -> None:
    assert figures.solved_figures([], {}, "mixtures") == {}
    assert figures.solved_shares({}) == {}
