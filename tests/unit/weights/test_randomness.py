"""The counter-based generator: what must never change, and what makes it random."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_forge.runs import keys
from agent_forge.weights import randomness

KEY = (7, "model.layers.0.mlp.up_proj.weight", 1)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 300), st.integers(0, 300))
def test_the_first_lanes_do_not_depend_on_how_many_are_asked_for(count: int, more: int):
    """Element e has its own bits, so a chunked or sharded build gives the same mask."""
    assert np.array_equal(randomness.lanes(count, *KEY), randomness.lanes(count + more, *KEY)[:count])


def test_uniform_and_gaussian_values_are_prefix_stable_too():
    """Noise on k elements is the beginning of noise on more."""
    assert np.array_equal(randomness.uniform(5, *KEY), randomness.uniform(50, *KEY)[:5])
    assert np.array_equal(randomness.gaussian(5, *KEY), randomness.gaussian(50, *KEY)[:5])


def test_no_values_are_no_values():
    """Tensors without elements exist."""
    assert len(randomness.lanes(0, *KEY)) == 0
    assert len(randomness.gaussian(0, *KEY)) == 0
    assert len(randomness.permutation(0, *KEY)) == 0


def test_every_part_of_the_key_counts():
    """Another seed, name or index is another stream; so are 1 and "1", and "a","b" and "ab"."""
    streams = [(1, "w", 0), (2, "w", 0), (1, "v", 0), (1, "w", 1), ("1", "w", 0), (1, "w0"), (1, "w")]
    first = {tuple(randomness.lanes(8, *key).tolist()) for key in streams}
    assert len(first) == len(streams)
    assert keys.key("a", "b") != keys.key("ab")


def test_inverse_normal_agrees_with_the_standard_library():
    """AS 241 promises about 1e-15 relative; `statistics` uses the same tables with a library log."""
    exact = NormalDist()
    p = np.concatenate(
        [
            np.linspace(0.001, 0.999, 999),
            10.0 ** -np.arange(4, 17),  # far tail: beyond tail 5.0 at p < 1.4e-11
            1.0 - 10.0 ** -np.arange(4, 15),
            np.asarray([0.075, 0.925, 0.0750001, 0.9249999, 2.0**-54]),  # where formulas change
        ]
    )
    found = randomness.inverse_normal(p.astype(np.float64))
    expected = np.asarray([exact.inv_cdf(float(x)) for x in p])
    assert np.allclose(found, expected, rtol=2e-14, atol=1e-16)


def test_inverse_normal_is_odd_and_zero_in_the_middle():
    """Φ⁻¹(1 − p) = −Φ⁻¹(p), exactly where 1 − p is exact."""
    p = np.asarray([0.25, 0.125, 2.0**-10, 2.0**-40])
    assert np.array_equal(randomness.inverse_normal(1.0 - p), -randomness.inverse_normal(p))
    assert randomness.inverse_normal(np.asarray([0.5]))[0] == 0.0


def test_the_own_logarithm_is_the_logarithm():
    """Made of additions and products only; within a few ulps of the library's."""
    x = np.asarray([2.0**-54, 1e-12, 0.1, 0.5, 0.7071, 0.7072, 0.999, 1.5, 100.0])
    expected = np.asarray([math.log(v) for v in x])
    assert np.allclose(randomness._log(x), expected, rtol=1e-15, atol=2e-16)


def test_gaussian_values_have_the_moments_of_the_normal_distribution():
    """100,000 values, five standard errors of each moment: √(Var xᵏ / n)."""
    n = 100_000
    x = randomness.gaussian(n, *KEY)
    assert abs(x.mean()) < 5 / math.sqrt(n)
    assert abs(x.var() - 1) < 5 * math.sqrt(2 / n)
    assert abs((x**3).mean()) < 5 * math.sqrt(15 / n)  # Var x³ = 15
    assert abs((x**4).mean() - 3) < 5 * math.sqrt(96 / n)  # Var x⁴ = 105 − 9


def test_uniform_values_are_open_and_even():
    """Never 0 or 1 (their quantile is infinite); ten bins of 100,000 within 5·√(n·0.1·0.9) = 475."""
    x = randomness.uniform(100_000, *KEY)
    assert x.min() > 0
    assert x.max() < 1
    bins = np.histogram(x, 10, (0, 1))[0]
    assert np.abs(bins - 10_000).max() < 475


def test_the_largest_word_gives_a_uniform_value_below_one(monkeypatch: pytest.MonkeyPatch):
    """The quantile of 1 is infinite; one word in 2⁵³ must not be the exception."""
    monkeypatch.setattr(randomness, "words", lambda count, *key: np.full(count, 2**64 - 1, np.uint64))
    assert randomness.uniform(1, *KEY)[0] < 1.0


def test_lanes_are_even_in_every_bit():
    """Each of 16 bits is set in half of 65,536 lanes, within 5·√(n/4) = 640."""
    found = randomness.lanes(1 << 16, *KEY)
    for bit in range(16):
        assert abs(int(((found >> bit) & 1).sum()) - 32_768) < 640


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 200), st.integers(0, 10**6))
def test_a_permutation_holds_every_number_once(count: int, seed: int):
    """Draws without replacement rest on this."""
    assert sorted(randomness.permutation(count, seed, "p").tolist()) == list(range(count))


def test_permutations_are_even():
    """Of 600 orders of three, each of the six comes 100 times, within 5·√(600·⅙·⅚) = 46."""
    seen = [tuple(randomness.permutation(3, seed, "p").tolist()) for seed in range(600)]
    counts = [seen.count(order) for order in set(seen)]
    assert len(counts) == 6
    assert all(abs(count - 100) <= 46 for count in counts)


def test_seeds_fit_a_signed_column():
    """SQLite and PostgreSQL integers have 63 bits and a sign."""
    assert all(0 <= keys.seed(i, "recipe") < 2**63 for i in range(200))


def test_lanes_words_and_keys_are_frozen():
    """Golden values made with numpy 2.4.6: a new library must give these bits or old runs are lost."""
    assert keys.key("golden") == 0xFC7EC44137935309307222CA22439A95
    assert keys.seed("golden", 1) == 2515410133782883185
    assert randomness.words(4, "golden").tolist() == [
        0xC5F5F8AD4AC47636,
        0xB961DAC46B6BF144,
        0x800A281DFC4F292D,
        0x9EE4ACBEB29310D2,
    ]
    # The lanes are the words' 16-bit parts, lowest first: 0x7636 = 30262, 0x4AC4 = 19140, …
    assert randomness.lanes(8, "golden").tolist() == [
        30262,
        19140,
        63661,
        50677,
        61764,
        27499,
        56004,
        47457,
    ]
    assert randomness.permutation(10, "golden").tolist() == [8, 9, 5, 7, 2, 3, 6, 4, 1, 0]
    raw = keys.generator("golden").bit_generator.random_raw(2)  # pyright: ignore
    assert raw.tolist() == [14264580817933334070, 13358198506908283204]


def test_gaussian_values_are_frozen_to_the_last_bit():
    """Noise is part of a champion's weights: the last bit of a library's logarithm must not be."""
    assert [x.hex() for x in randomness.gaussian(6, "golden").tolist()] == [
        "0x1.7fd9a074cef15p-1",
        "0x1.30bfbc663ed54p-1",
        "0x1.97586fbf920a8p-12",
        "0x1.3aa20c6db8885p-2",
        "0x1.0abffc706d2aap-1",
        "-0x1.8cc49d4500fc4p-2",
    ]
