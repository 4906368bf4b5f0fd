"""The forecast from losses along lines: points, barriers, and what counts as better. No torch."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.evomerge.mergeability import forecast, report
from agent_forge.evomerge.mergeability.forecast import LossLine, MergePoint

#: How much each of 40 windows differs from the mean, whatever the model.
SPREAD = np.linspace(-1.0, 1.0, 40)


def point(shares: tuple[float, ...], loss: float, shift: float = 0.0) -> MergePoint:
    """Return a point with losses of 40 windows of 10 tokens; half of them are off by ± `shift`."""
    each = loss + SPREAD + shift * np.sign(SPREAD)
    return MergePoint(shares, {"text": ([*(10 * each)], [10.0] * 40)})


def world(loss, count: int = 2) -> list[MergePoint]:
    """Return the points of `count` sources, with the loss that a function of the shares says."""
    return [point(shares, loss(shares)) for shares in forecast.shares(count)]


def test_points_are_ends_lines_and_the_mean() -> None:
    """Two sources have their ends, three places on each line, and the mean on the line between them."""
    shares = forecast.shares(2)
    assert shares[:3] == [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)]
    assert set(shares[3:]) == {
        *((place, 0.0) for place in (0.25, 0.5, 0.75)),
        *((0.0, place) for place in (0.25, 0.5, 0.75)),
        *((1 - place, place) for place in (0.25, 0.5, 0.75)),
    }
    assert len(forecast.shares(3)) == 4 + 9 + 9 + 1
    assert [p.is_end for p in world(lambda _: 1.0)] == [True] * 3 + [False] * 9


def test_a_bowl_between_two_sources_says_yes() -> None:
    """The mean is the lowest: both sources know what the other lacks."""
    points = world(lambda s: 3.0 + (s[0] - 0.5) ** 2 + (s[1] - 0.5) ** 2)
    found = forecast.forecast(points)
    assert (found.answer, found.best_merge) == ("yes", (0.5, 0.5))
    assert found.difference.difference == pytest.approx(-0.5)
    told = report.sentence(found, ["a", "b"], "base")
    assert told.startswith("loss of this text: the best merge on the lines is better than base")


def test_a_ridge_around_every_end_says_no() -> None:
    points = world(lambda s: 3.0 if s in ((0, 0), (1, 0), (0, 1)) else 3.5)
    found = forecast.forecast(points)
    assert found.answer == "no"
    assert found.difference.low == pytest.approx(0.5)


def test_a_difference_that_windows_do_not_agree_on_is_open() -> None:
    """The merge is better on half of the windows and worse on the others, a little more so."""
    points = [point(s, 3.0) for s in forecast.shares(2) if s != (0.5, 0.5)]
    points = [p if p.is_end else point(p.shares, 3.2) for p in points]
    points.append(point((0.5, 0.5), 2.99, shift=0.5))
    assert forecast.forecast(points).answer == "open"


def test_merges_without_a_finite_loss_say_no() -> None:
    points = [p if p.is_end else point(p.shares, math.nan) for p in world(lambda _: 3.0)]
    found = forecast.forecast(points)
    assert found.answer == "no"
    assert json.dumps(report._finite(found.difference.low)) == "null"


def test_the_barrier_is_above_the_straight_line() -> None:
    """Ends 1 and 3: at the middle the line is at 2, so a loss of 2½ is half a nat above it."""
    assert LossLine(None, 0, (1.0, 1.5, 2.5, 2.6, 3.0)).barrier == pytest.approx(0.5)
    assert LossLine(None, 0, (1.0, 1.1, 1.2, 1.3, 3.0)).barrier == 0.0


def test_a_line_has_the_points_between_its_ends() -> None:
    points = world(lambda s: s[0] + 10 * s[1])
    assert forecast.line(points, None, 0).losses == pytest.approx((0, 0.25, 0.5, 0.75, 1))
    assert forecast.line(points, 0, 1).losses == pytest.approx((1, 3.25, 5.5, 7.75, 10))


def test_every_domain_counts_alike() -> None:
    """A short domain with a great loss is not drowned by a long one."""
    losses = {"long": ([100.0] * 9, [100.0] * 9), "short": ([30.0], [10.0])}
    assert MergePoint((0.0,), losses).loss == pytest.approx(2.0)


@given(st.lists(st.floats(0.5, 5), min_size=12, max_size=12))
def test_an_answer_never_contradicts_the_means(values: list[float]) -> None:
    """Yes only if the best merge is lower than the best end, no only if it is higher."""
    points = [point(s, v) for s, v in zip(forecast.shares(2), values, strict=True)]
    found = forecast.forecast(points)
    lead = min(values[3:]) - min(values[:3])
    assert found.difference.difference == pytest.approx(lead)
    assert found.answer != "yes" or lead < 0
    assert found.answer != "no" or lead > 0


def test_places_in_words() -> None:
    names = ["code", "math", "data"]
    assert report.place((0, 0, 0), names, "base") == "base"
    assert report.place((0, 1, 0), names, "base") == "math"
    assert report.place((0.75, 0, 0), names, "base") == "¼ base + ¾ code"
    assert report.place((0.25, 0.75, 0), names, "base") == "¼ code + ¾ math"
    assert report.place((1 / 3, 1 / 3, 1 / 3), names, "base") == "the mean of all"
