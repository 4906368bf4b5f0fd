"""Schedules: the rates of steps, by hand."""

from __future__ import annotations

import pytest

from agent_forge.weights.training.schedules import Constant, Cosine, CosineBurst


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


def test_a_burst_is_the_cosine_times_a_factor_in_its_steps_alone() -> None:
    plain = Cosine(peak=1.0, warmup=0.1, floor=0.1)
    burst = CosineBurst(peak=1.0, warmup=0.1, floor=0.1, factor=3.0, first=4, upto=6)
    for step in range(10):
        assert burst.rate(step, 10) == plain.rate(step, 10) * (3.0 if step in (4, 5) else 1.0)
