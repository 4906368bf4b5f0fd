"""The plateau detector, and when cycles end: by numbers worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from phases.baking import cycles, plateau
from phases.baking.config import BakingConfig
from phases.baking.events import BakingState, CycleSwitched, IterationEnded


def test_moving_averages_and_slopes() -> None:
    assert plateau.averages([0.0, 0.2, 0.4, 0.4], 2) == pytest.approx([0.0, 0.1, 0.3, 0.4])
    assert plateau.slope([0.0, 0.1, 0.3]) == pytest.approx(0.15)  # (0.3 - 0) / 2
    assert plateau.slope([0.1, 0.3, 0.4, 0.4]) == pytest.approx(0.1)  # 0.5 / 5
    assert plateau.slope([0.5, 0.5]) == 0.0


def test_too_few_scores_are_no_plateau() -> None:
    assert plateau.found([0.1, 0.1], 2, 3) is None
    assert plateau.found([0.1, 0.1, 0.1], 2, 3) == pytest.approx(0.0)
    assert plateau.found([0.0, 0.2, 0.4, 0.4], 2, 3) == pytest.approx(0.15)


def state(*ends: Any, switches: tuple[CycleSwitched, ...] = (), **settings: Any) -> BakingState:
    """Return a state with iterations: (cycle, outcome, before, after)."""
    found = BakingState()
    config = BakingConfig(**{"epsilon": 0.05, "smoothing": 1, "window": 2, **settings})
    found.submitted = SimpleNamespace(config=config)  # pyright: ignore
    found.iterations = tuple(
        IterationEnded(iteration=n, cycle=c, outcome=o, before=b, after=a, persona=None, why="")
        for n, (c, o, b, a) in enumerate(ends, 1)
    )
    found.switches = switches
    return found


def verdict(found: CycleSwitched | None) -> tuple[str, str | None] | None:
    """Return reason and what goes on."""
    return found and (found.reason, found.next)


def test_a_cycle_goes_on_while_it_gains() -> None:
    assert cycles.switching(state()) is None
    assert cycles.switching(state(("tools", "kept", 0.0, 0.2))) is None


def test_a_plateau_switches_and_says_its_slope() -> None:
    found = cycles.switching(state(("tools", "kept", 0.0, 0.2), ("tools", "kept", 0.2, 0.22)))
    assert verdict(found) == ("plateau", "personas")
    assert found is not None
    assert found.scores == (0.0, 0.2, 0.22)
    assert found.slope == pytest.approx(0.02)


@pytest.mark.parametrize("outcome", ["reverted", "nothing"])
def test_a_bake_that_is_not_kept_ends_its_cycle(outcome: str) -> None:
    found = cycles.switching(state(("tools", outcome, 0.2, None)))
    assert verdict(found) == (outcome, "personas")


def test_two_cycles_without_a_gain_end_the_run() -> None:
    first = cycles.switching(state(("tools", "nothing", 0.2, None)))
    assert first is not None
    ends = (("tools", "nothing", 0.2, None), ("personas", "nothing", 0.2, None))
    assert verdict(cycles.switching(state(*ends, switches=(first,)))) == ("nothing", None)
    ends = (("tools", "nothing", 0.2, None), ("personas", "kept", 0.2, 0.4))
    assert cycles.switching(state(*ends, switches=(first,))) is None
    third = (*ends, ("personas", "reverted", 0.4, 0.3))
    assert verdict(cycles.switching(state(*third, switches=(first,)))) == ("reverted", "tools")


def test_a_cycle_on_a_plateau_gets_another_turn() -> None:
    ends = (("tools", "kept", 0.0, 0.5), ("tools", "kept", 0.5, 0.5))
    first = cycles.switching(state(*ends))
    assert first is not None
    ends = (*ends, ("personas", "nothing", 0.5, None))
    assert verdict(cycles.switching(state(*ends, switches=(first,)))) == ("nothing", "tools")


def test_the_limit_and_a_single_cycle_end_the_run() -> None:
    kept = ("tools", "kept", 0.0, 0.5)
    assert verdict(cycles.switching(state(kept, iterations=1))) == ("limit", None)
    single = state(("tools", "nothing", 0.0, None), cycles=("tools",))
    assert verdict(cycles.switching(single)) == ("nothing", None)


def test_nothing_follows_the_end() -> None:
    last = cycles.switching(state(("tools", "kept", 0.0, 0.5), iterations=1))
    assert last is not None
    assert cycles.switching(state(("tools", "kept", 0.0, 0.5), switches=(last,))) is None
