"""Selection of NSGA-II: fronts first, then room; tournaments by both."""

from __future__ import annotations

from collections import Counter

from agent_forge.search import pareto
from agent_forge.search.pareto import Draws, Survivor


def test_the_better_front_survives_and_in_it_the_ends() -> None:
    """(2, 2) lies between the ends of the first front; (1, 1) is beaten by it."""
    points = {"a": (1.0, 3.0), "b": (2.0, 2.0), "c": (3.0, 1.0), "d": (1.0, 1.0)}
    found = pareto.survivors(points)
    assert [(one.id, one.front) for one in found] == [("a", 0), ("c", 0), ("b", 0), ("d", 1)]
    assert found[2].crowding == 2.0


def test_equals_are_ordered_by_their_names() -> None:
    points = {"b": (1.0, 1.0), "a": (1.0, 1.0)}
    assert [one.id for one in pareto.survivors(points)] == ["a", "b"]


def test_tournaments_are_won_by_front_then_room() -> None:
    """The better of two drawn with replacement wins: the worst only if it is drawn twice, 1 in n²."""
    parents = [Survivor("best", 0, 1.0), Survivor("worse", 0, 0.5), Survivor("last", 1, 9.0)]
    won = Counter(pareto.tournament(parents, Draws("t", n)) for n in range(900))
    shares = {name: won[name] / 900 for name in ("best", "worse", "last")}
    assert abs(shares["best"] - 5 / 9) < 0.06
    assert abs(shares["worse"] - 3 / 9) < 0.06
    assert abs(shares["last"] - 1 / 9) < 0.06
