"""When an evaluation ends early: by hand, and how often by mistake."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.evaluation.data import outcomes
from agent_forge.evaluation.data.outcomes import DomainOutcomes, Draw, Draws, Outcomes
from agent_forge.evomerge.run.rules import early_stopping
from agent_forge.evomerge.run.rules.early_stopping import StopRules, drop_reason
from agent_forge.runs import keys
from testing.shares import one_quick


def drawn(**windows: int) -> Draws:
    """Domain → all of so many windows; some questions, which no block has."""
    return {d: Draw(windows=tuple(range(n)), questions=(0, 1)) for d, n in windows.items()}


@given(st.integers(0, 70), st.integers(0, 70), st.integers(1, 20))
def test_blocks_hold_every_window_once(first: int, second: int, least: int):
    """At most six, none but a domain's last smaller than a batch, whole batches each."""
    draws = drawn(a=first, b=second)
    parts = early_stopping.blocks_of(draws, least, 7, "key")
    assert len(parts) <= early_stopping.BLOCKS
    for domain, count in (("a", first), ("b", second)):
        sizes = [len(part[domain].windows) for part in parts]
        assert sum(sizes) == count
        full = [size for size in sizes if size][:-1]
        assert all(size >= least and size % least == 0 for size in full)
        assert sorted(i for part in parts for i in part[domain].windows) == list(range(count))
    if parts:
        assert outcomes.joined(parts) == {
            d: Draw(windows=draws[d].windows, questions=()) for d in sorted(draws)
        }


def test_blocks_are_in_a_random_order_of_their_key():
    """Neighbouring windows come from one text: the first block must not be one text."""
    parts = early_stopping.blocks_of(drawn(a=48), 8, 1, "g", 0)
    assert [len(p["a"].windows) for p in parts] == [8] * 6
    assert parts[0]["a"].windows != tuple(range(8))
    assert early_stopping.blocks_of(drawn(a=48), 8, 1, "g", 0) == parts
    assert early_stopping.blocks_of(drawn(a=48), 8, 1, "g", 1) != parts


def seen(rates: list[float], tokens: int = 10) -> Outcomes:
    """One domain, windows of these nats a token."""
    nll = tuple(r * tokens for r in rates)
    return {"d": DomainOutcomes(nll=nll, tokens=(tokens,) * len(rates), hits=(1,) * len(rates))}


def test_the_gate_closes_above_its_ratio_to_the_worst_source():
    """Perplexity e² against the worst source's e^1.5: a ratio of e^0.5 = 1.6487."""
    sources = {"good": seen([1.0] * 4), "bad": seen([1.5] * 4)}
    mine = seen([2.0] * 4)
    assert drop_reason(StopRules(perplexity=1.66, error=0), mine, sources, 5) is None
    why = drop_reason(StopRules(perplexity=1.64, error=0), mine, sources, 5)
    assert why is not None
    assert "perplexity 7.389 on the first 4 windows" in why
    assert "1.64 times that of the worst source (bad, 4.482)" in why
    assert drop_reason(StopRules(perplexity=0, error=0), mine, sources, 5) is None
    assert StopRules(perplexity=0, error=0).shut_off


def test_what_is_not_finite_is_left_to_the_evaluation():
    """It says why there is no fitness; the gate must not hide that."""
    mine = seen([math.nan] * 4)
    assert drop_reason(StopRules(perplexity=1.1, error=0.1), mine, {"a": seen([1.0] * 4)}, 5) is None


def test_the_test_is_a_paired_one():
    """A small, steady difference is seen through a large common spread; a noisy one is not."""
    hard = keys.generator("hard").normal(3.0, 1.0, 24)
    steady = seen([float(h + 0.05 + 0.01 * (i % 3)) for i, h in enumerate(hard)])
    noisy = seen([float(h + 0.05 + (0.5 if i % 2 else -0.5)) for i, h in enumerate(hard)])
    sources = {"a": seen(list(map(float, hard))), "worse": seen([float(h + 1) for h in hard])}
    gate = StopRules(perplexity=0, error=0.01)
    why = drop_reason(gate, steady, sources, 5)
    assert why is not None
    assert "clearly worse than a" in why
    assert "at an error rate of 0.01 in 5 looks" in why
    assert drop_reason(gate, noisy, sources, 5) is None
    assert drop_reason(gate, sources["a"], sources, 5) is None


@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    [(0.95, 7, 1.8946), (0.99, 10, 2.7638), (0.999, 23, 3.4850), (0.975, 30, 2.0423), (0.5, 9, 0.0)],
)
def test_quantiles_are_those_of_the_tables(probability: float, freedom: int, expected: float):
    """Student's t (any table)."""
    assert early_stopping.quantile(probability, freedom) == pytest.approx(expected, abs=5e-3)


@pytest.mark.parametrize("error", one_quick(0.05, 0.2))
def test_the_stated_error_rate_holds(error: float):
    """2,000 candidates exactly as good as the best source, five looks at 8 … 40 windows.

    Differences with a heavy tail, as windows have. At most `error` of them are stopped, within three
    standard errors; and the test is not so careful that it never stops anybody.
    """
    rng = keys.generator("calibration", str(error))
    hard = rng.normal(3.0, 0.5, 48)
    source = seen(list(map(float, hard)))
    gate = StopRules(perplexity=0, error=error)
    stopped = 0
    for _ in range(2000):
        mine = hard + rng.standard_t(6, 48) * 0.1
        stopped += any(_look(gate, mine, source, n) for n in (8, 16, 24, 32, 40))
    assert stopped / 2000 <= error + 3 * math.sqrt(error * (1 - error) / 2000)
    assert stopped > 2000 * error / 10


def _look(gate: StopRules, mine: np.ndarray, source: Outcomes, count: int) -> bool:
    first = {"d": source["d"].pick(Draw(windows=tuple(range(count)), questions=()))}
    return drop_reason(gate, seen(list(map(float, mine[:count]))), {"s": first}, 5) is not None


def test_a_clear_loser_is_stopped_early():
    """Worse by twice the spread of the differences: after the first block or two."""
    rng = keys.generator("power")
    hard = rng.normal(3.0, 0.5, 48)
    source, gate, looks = seen(list(map(float, hard))), StopRules(perplexity=0, error=0.01), []
    for _ in range(200):
        mine = hard + 0.2 + rng.normal(0, 0.1, 48)
        looks.append(next(n for n in (8, 16, 24, 32, 40) if _look(gate, mine, source, n)))
    assert np.mean(looks) < 14


def test_narrowing_takes_the_scored_windows_of_a_draw():
    """Their places in the draw, not in the slice."""
    draws = {"d": Draw(windows=(3, 5, 9), questions=())}
    scored = {"d": Draw(windows=(5, 9), questions=())}
    found = outcomes.narrowed(seen([1.0, 2.0, 3.0]), draws, scored)
    assert found["d"].nll == (20.0, 30.0)
