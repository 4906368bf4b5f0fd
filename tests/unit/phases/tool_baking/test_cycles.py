"""The plateau detector, and when cycles end: by numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from agent_forge.phases.tool_baking import recipes
from agent_forge.phases.tool_baking.recipes import CycleSwitched, IterationEnded
from agent_forge.phases.tool_baking.settings import BakingConfig


def test_moving_averages_and_slopes() -> None:
    assert recipes.averages([0.0, 0.2, 0.4, 0.4], 2) == pytest.approx([0.0, 0.1, 0.3, 0.4])
    assert recipes.slope([0.0, 0.1, 0.3]) == pytest.approx(0.15)  # (0.3 - 0) / 2
    assert recipes.slope([0.1, 0.3, 0.4, 0.4]) == pytest.approx(0.1)  # 0.5 / 5
    assert recipes.slope([0.5, 0.5]) == 0.0


def test_too_few_scores_have_no_slope() -> None:
    assert recipes.newest_slope([0.1, 0.1], 2, 3) is None
    assert recipes.newest_slope([0.1, 0.1, 0.1], 2, 3) == pytest.approx(0.0)
    assert recipes.newest_slope([0.0, 0.2, 0.4, 0.4], 2, 3) == pytest.approx(0.15)


def switch(
    *ends: Any, switches: tuple[CycleSwitched, ...] = (), **settings: Any
) -> CycleSwitched | None:
    """Return the switch after iterations: (cycle, outcome, before, after)."""
    config = BakingConfig(**{"epsilon": 0.05, "smoothing": 1, "window": 2, **settings})
    iterations = [
        IterationEnded(iteration=n, cycle=c, outcome=o, before=b, after=a, persona=None, why="")
        for n, (c, o, b, a) in enumerate(ends, 1)
    ]
    return recipes.switch(config, iterations, switches)


def verdict(found: CycleSwitched | None) -> tuple[str, str | None] | None:
    """Return reason and what goes on."""
    return found and (found.reason, found.next)


def test_a_cycle_goes_on_while_it_gains() -> None:
    assert switch(("tools", "kept", 0.0, 0.2)) is None


def test_a_plateau_switches_and_says_its_slope() -> None:
    found = switch(("tools", "kept", 0.0, 0.2), ("tools", "kept", 0.2, 0.22))
    assert verdict(found) == ("plateau", "personas")
    assert found is not None
    assert found.scores == (0.0, 0.2, 0.22)
    assert found.slope == pytest.approx(0.02)


@pytest.mark.parametrize("outcome", ["reverted", "nothing"])
def test_a_bake_that_is_not_kept_ends_its_cycle(outcome: str) -> None:
    assert verdict(switch(("tools", outcome, 0.2, None))) == (outcome, "personas")


def test_two_cycles_without_a_gain_end_the_run() -> None:
    first = switch(("tools", "nothing", 0.2, None))
    assert first is not None
    ends = (("tools", "nothing", 0.2, None), ("personas", "nothing", 0.2, None))
    assert verdict(switch(*ends, switches=(first,))) == ("nothing", None)
    ends = (("tools", "nothing", 0.2, None), ("personas", "kept", 0.2, 0.4))
    assert switch(*ends, switches=(first,)) is None
    third = (*ends, ("personas", "reverted", 0.4, 0.3))
    assert verdict(switch(*third, switches=(first,))) == ("reverted", "tools")


def test_a_cycle_on_a_plateau_gets_another_turn() -> None:
    ends = (("tools", "kept", 0.0, 0.5), ("tools", "kept", 0.5, 0.5))
    first = switch(*ends)
    assert first is not None
    ends = (*ends, ("personas", "nothing", 0.5, None))
    assert verdict(switch(*ends, switches=(first,))) == ("nothing", "tools")


def test_the_limit_and_a_single_cycle_end_the_run() -> None:
    assert verdict(switch(("tools", "kept", 0.0, 0.5), iterations=1)) == ("limit", None)
    single = switch(("tools", "nothing", 0.0, None), cycles=("tools",))
    assert verdict(single) == ("nothing", None)
