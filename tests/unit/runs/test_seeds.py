"""Seeds of one line summed up: median and band, beside a computation place by place."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.runs.errors import ConfigError
from agent_forge.runs.panels import side_by_side, thinning
from agent_forge.runs.panels.panels import Lines, Series
from testing.panels import EVERY
from testing.toy import long_kind


def series(y: list[float | None], x: list[int] | None = None, seed: int = 0) -> Series:
    """One seed."""
    return Series(name="a", seed=seed, x=tuple(x or range(len(y))), y=tuple(y))


def test_median_and_band_by_hand() -> None:
    """The median of an even number of seeds is the mean of the middle two."""
    made = side_by_side.summary([series([1.0, 8.0]), series([3.0, 2.0]), series([2.0, 4.0])])
    assert made is not None
    assert (made.y, made.low, made.high) == ((2.0, 4.0), (1.0, 2.0), (3.0, 8.0))
    two = side_by_side.summary([series([1.0, 8.0]), series([3.0, 2.0])])
    assert two is not None
    assert two.y == (2.0, 5.0)


def test_a_gap_and_an_early_end_leave_the_others() -> None:
    """No seed is carried on beyond its last point."""
    made = side_by_side.summary([series([1.0, None, None]), series([3.0, 5.0, None])])
    assert made is not None
    assert (made.y, made.low) == ((2.0, 5.0, None), (1.0, 5.0, None))
    short = side_by_side.summary([series([1.0]), series([3.0, 5.0])])
    assert short is not None
    assert (short.x, short.y) == ((0, 1), (2.0, 5.0))


def test_one_seed_and_places_that_do_not_ascend_are_not_summed_up() -> None:
    assert side_by_side.summary([series([1.0])]) is None
    assert side_by_side.summary([series([1.0, 2.0], [1, 1]), series([1.0, 2.0])]) is None


LINES = st.dictionaries(st.integers(0, 30), st.floats(-10, 10), min_size=1, max_size=12)


@given(st.lists(LINES, min_size=2, max_size=5))
def test_seeds_of_different_places_are_read_between_their_points(made: list[dict]) -> None:
    """As numpy interpolates, at every place."""
    lines = [sorted(one.items()) for one in made]
    given_ = [series([y for _, y in one], [x for x, _ in one], n) for n, one in enumerate(lines)]
    found = side_by_side.summary(given_)
    assert found is not None
    assert found.x == tuple(sorted({x for one in made for x in one}))
    ends = [(min(one), max(one)) for one in made]
    for n, place in enumerate(found.x):
        values = [
            float(np.interp(place, [x for x, _ in one], [y for _, y in one]))
            for one, (first, last) in zip(lines, ends, strict=True)
            if first <= place <= last
        ]
        assert found.y[n] == pytest.approx(median(values), abs=1e-9)
        assert found.low is not None
        assert found.high is not None
        assert found.low[n] == pytest.approx(min(values), abs=1e-9)
        assert found.high[n] == pytest.approx(max(values), abs=1e-9)


def test_a_part_of_a_long_line_has_all_its_points() -> None:
    """A hundred steps of 100,000, and the neighbours beyond both ends."""
    part = thinning.within(long_kind.long(), 30_000, 30_100)
    assert isinstance(part, Lines)
    assert part.series[0].x == tuple(range(29_999, 30_102))
    assert part.total is None
    half = thinning.within(long_kind.long(), 50_000, None)
    assert isinstance(half, Lines)
    assert half.total == 50_001
    (line,) = half.series
    assert len(line.x) <= thinning.POINTS
    assert (line.x[0], line.x[-1], max(y for y in line.y if y)) == (49_999, 99_999, 5)
    empty = thinning.within(long_kind.long(), None, -5)
    assert isinstance(empty, Lines)
    assert empty.series[0].x == (0,)


def test_a_part_of_what_has_no_lines_is_refused() -> None:
    with pytest.raises(ConfigError, match="panel sizes has no lines"):
        thinning.within(EVERY["front"], 0, 1)
