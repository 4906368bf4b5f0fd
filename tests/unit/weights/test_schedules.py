"""Schedules: the rates of steps, by hand."""

from __future__ import annotations

import pytest

from weights.training.schedules import Constant, Cosine


def test_cosine_warms_up_and_decays_to_a_tenth() -> None:
    """Linear to the peak at 10 % of the steps, cosine down from there."""
    rates = [Cosine(peak=1.0).rate(step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == pytest.approx(1.0)
    assert max(rates) == pytest.approx(1.0)
    assert rates[55] == pytest.approx(0.1 + 0.9 * 0.5)
    assert rates[99] == pytest.approx(0.1, abs=0.01)


def test_cosine_of_one_step_is_the_peak() -> None:
    """A warm-up has at least one step, and no step divides by zero."""
    assert Cosine(peak=0.5).rate(0, 1) == 0.5
    assert Cosine(peak=1.0, warmup=0.0, floor=0.0).rate(1, 2) == pytest.approx(1.0)


def test_constant_is_the_peak_after_its_warm_up() -> None:
    """Without a warm-up from the first step on."""
    assert [Constant(peak=2.0).rate(step, 4) for step in range(4)] == [2.0] * 4
    assert [Constant(peak=2.0, warmup=0.5).rate(s, 4) for s in range(4)] == [1.0, 2.0, 2.0, 2.0]
