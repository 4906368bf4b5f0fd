"""The search over mixtures, without a model: space, techniques, generations, what is given up."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_forge.phases.experts.recipes import Factors, Scored, Scoring
from agent_forge.phases.experts.search import techniques
from agent_forge.phases.experts.search.generations import (
    Search,
    StopLimit,
    objectives,
    preferred,
    ranked,
    ratios,
    spaces,
    volume,
    whole,
)
from agent_forge.phases.experts.search.techniques import BOUNDS, SMALL, MixtureSpace
from agent_forge.phases.experts.settings import ExpertsConfig
from agent_forge.studies.events import Observed

GIVEN = Observed(
    recipe_id="1" * 64,
    measure="bits-per-byte@1",
    on="search",
    values={"code": 1.0, "prose": 1.0},
    items={"code": (10.0, 10.0), "prose": (20.0, 20.0)},
    sizes={"code": (10, 10), "prose": (10, 10)},
    seconds=0.0,
)
CONFIG = ExpertsConfig.model_validate({"evaluations": 100, "population": 20, "windows": 2, "probe": 1})
SPACE = MixtureSpace(2, ("code", "math"))


@settings(max_examples=80, deadline=None)
@given(point=st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_a_point_and_its_factors_go_both_ways(point: list[float]) -> None:
    """But for small factors, which are 0; bounds hold."""
    factors = SPACE.factors(point)
    assert len(factors) == 4
    for x, factor in zip(point, factors, strict=True):
        value = BOUNDS[0] + x * (BOUNDS[1] - BOUNDS[0])
        assert factor == pytest.approx(0.0 if abs(round(value, 6)) < SMALL else value, abs=1e-6)
    assert SPACE.factors(SPACE.point(factors)) == factors


def test_a_bare_space_searches_models_alone() -> None:
    bare = MixtureSpace(2, ("code", "math"), bare=True)
    assert bare.free == 2
    assert bare.factors([1.0, 0.25]) == (1.5, 0.0, 0.0, 0.0)
    assert len(bare.point((1.5, 0.5, 9.0, 9.0))) == 2
    assert not any(any(factors[2:]) for factors in techniques.pool(bare, 0.1))


def test_there_are_ten_techniques_at_ten_scales() -> None:
    """With three models and four experts none is left out, and few are alike."""
    assert len(techniques.TECHNIQUES) == techniques.SCALES == 10
    every = techniques.pool(MixtureSpace(3, ("a", "b", "c", "d")), 0.1)
    assert 80 <= len(every) <= 100
    assert len(set(every)) == len(every)
    assert (0.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0) in every  # one expert, the first scale
    assert (1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0) in every  # the sum of models, the last
    assert techniques.pool(MixtureSpace(0, ("a",)), 0.1) == [(round(0.1 * n, 6),) for n in range(1, 11)]


@pytest.mark.parametrize("count", [5, 60])
def test_the_first_generation_is_of_the_pool_then_of_copies(count: int) -> None:
    space = MixtureSpace(1, ("a",))
    every = set(techniques.pool(space, 0.1))
    found = techniques.first(space, count, 0.1, 7)
    assert found == techniques.first(space, count, 0.1, 7) != techniques.first(space, count, 0.1, 8)
    assert len(found) == count
    own = min(count, len(every))
    assert set(found[:own]) <= every
    assert len(set(found[:own])) == own


def test_without_parts_there_is_no_arm() -> None:
    assert spaces(0, ()) == {}
    assert list(spaces(0, ("a",))) == ["mixtures", "random"]
    assert list(spaces(2, ())) == ["mixtures", "random"]
    assert list(spaces(2, ("a",))) == ["mixtures", "random", "models"]


def test_objectives_are_relative_and_count_parts() -> None:
    """9 + 9 of 20 nats, 22 + 22 of 40, two of four parts."""
    items = {"code": (9.0, 9.0), "prose": (22.0, 22.0)}
    assert ratios(items, GIVEN) == {"code": 0.9, "prose": 1.1}
    assert objectives(items, (0.5, 0.0, -1.0, 0.0), GIVEN) == pytest.approx((-0.9, -1.1, -0.5))
    assert whole(items, GIVEN)
    assert not whole({"code": (9.0,), "prose": (22.0, 22.0)}, GIVEN)
    assert not whole({}, GIVEN)
    # One point, 0.15 and 0.05 better than the reference, three quarters of the cost left.
    assert volume([(-0.9, -1.0, -0.5)], 4) == pytest.approx(0.15 * 0.05 * 0.75)
    assert volume([], 4) == 0.0
    # Of more than five objectives: the mean, the worst and the cost.
    many = [(-0.9, -1.0, -0.95, -0.95, -0.95, -0.5)]
    assert volume(many, 4) == pytest.approx(0.1 * 0.05 * 0.75)


def test_a_mixture_is_given_up_if_one_model_is_ahead_in_every_domain() -> None:
    bar = StopLimit(({"code": 1.0, "prose": 1.0}, {"code": 0.8, "prose": 1.2}), 0.1, 1)
    for code, prose, expected in ((11.1, 22.1, True), (11.1, 21.9, False), (8.9, 26.5, True)):
        assert bar.gives_up({"code": (code,), "prose": (prose,)}, GIVEN) is expected


# ---- generations -----------------------------------------------------------------------------


class World:
    """A search whose mixtures are measured by a formula: each domain has its own best factors."""

    def __init__(self, arm: str = "mixtures", config: ExpertsConfig = CONFIG) -> None:
        self.answers: dict[str, Any] = {}
        self.search = Search(config, self.answers, arm, SPACE, GIVEN)

    def measured(self, factors: Factors) -> dict[str, tuple[float, ...]]:
        """Return bowls around (1, 0, 1, 0) and (0, 1, 0, 0)."""
        far = [
            sum((a - b) ** 2 for a, b in zip(factors, best, strict=True))
            for best in ((1, 0, 1, 0), (0, 1, 0, 0))
        ]
        return {
            domain: tuple(one * (0.9 + 0.05 * f) for one in GIVEN.items[domain])
            for domain, f in zip(("code", "prose"), far, strict=True)
        }

    def advance(self) -> None:
        """Breed a generation, measure it, end it."""
        number, arm = len(self.search.ended), self.search.arm
        bred = self.answers[f"bred/{arm}/{number}"] = self.search.breed(number)
        for task in self.search.tasks(number):
            items = tuple(self.measured(f) for f in bred.mixtures[task.first : task.last])
            self.answers[task.key] = Scored(
                arm=arm, number=number, first=task.first, items=items, seconds=0.0
            )
        self.answers[f"ended/{arm}/{number}"] = self.search.end(number)


def test_the_front_grows_and_no_child_is_a_copy() -> None:
    world = World()
    for _ in range(5):
        world.advance()
    assert world.search.size(5) == 0
    volumes = [event.hypervolume for event in world.search.ended]
    assert volumes == sorted(volumes)
    assert volumes[-1] > volumes[0]
    assert [event.evaluations for event in world.search.ended] == [20, 40, 60, 80, 100]
    for before, bred in itertools.pairwise(map(world.search.bred, range(5))):
        kept = {world.search.factors(id_) for id_ in world.search.ended[before.number].survivors}
        assert len(set(bred.mixtures)) == len(bred.mixtures)
        assert not kept & set(bred.mixtures)


def lost(elite: int, seed: int) -> int:
    """Return after how many generations of a search the best so far are not among the survivors."""
    asked = {"population": 8, "evaluations": 160, "elite": elite, "seed": seed}
    world, told, count = World(config=CONFIG.model_copy(update=asked)), {}, 0
    for number in range(20):
        world.advance()
        own = [f"{number}/{slot}" for slot in range(8)]
        told |= {id_: ratios(world.search.items(id_), GIVEN) for id_ in own}
        kept = world.search.ended[-1].survivors
        assert len(kept) == len(set(kept)) == 8
        best = preferred(world.search.config, told)[: max(1, elite)]
        count += not set(best) <= set(kept)
    return count


def test_a_longer_search_does_not_lose_the_best() -> None:
    """Crowding alone does: hardly a mixture beats another in every objective."""
    assert sum(lost(0, seed) for seed in range(4)) > 0
    assert [lost(elite, seed) for elite in (1, 3) for seed in range(4)] == [0] * 8


def test_the_elite_stays_in_its_front() -> None:
    """Survivors begin with the front that is counted, and an elite as large as all is no more."""
    for elite in (3, 50):
        world = World(config=CONFIG.model_copy(update={"elite": elite}))
        for _ in range(3):
            world.advance()
            ended = world.search.ended[-1]
            assert len(ended.survivors) == 20
            points = world.search.points(ended.survivors)
            front = [ranked(points)[n].id for n in range(ended.front)]
            assert set(ended.survivors[: ended.front]) == set(front)


def test_finalists_are_the_best_that_differ() -> None:
    """A survivor that is left out though better than the last finalist is near to a better one."""
    asked = {"population": 8, "evaluations": 160, "finalists": 3}
    for apart in (0.0, 0.2):
        world = World(config=CONFIG.model_copy(update={**asked, "apart": apart}))
        for _ in range(20):
            world.advance()
        search, survivors = world.search, world.search.ended[-1].survivors
        told = {id_: ratios(search.items(id_), GIVEN) for id_ in survivors}
        found, order = search.finalists(), preferred(search.config, told)
        assert len(found) == 3
        for place, id_ in enumerate(order[: order.index(found[-1]) + 1]):
            better = [one for one in found if order.index(one) < place]
            alike = [one for one in better if distance(search, one, id_) <= apart]
            assert (id_ in found) == (not alike or apart == 0)
        assert (found == order[:3]) == (apart == 0)


def distance(search: Search, one: str, other: str) -> float:
    """Return the largest difference of two mixtures in a factor."""
    pairs = zip(search.factors(one), search.factors(other), strict=True)
    return max(abs(a - b) for a, b in pairs)


def test_mixtures_that_are_hopeless_in_a_domain_come_last() -> None:
    """Although no other one beats (−0.5, −1.06, −0.1): it is 6 % worse in the second domain."""
    points = {"a": (-0.99, -1.0, -0.5), "b": (-1.0, -1.01, -0.5), "c": (-0.5, -1.06, -0.1)}
    found = ranked(points)
    assert [(one.id, one.front) for one in found] == [("a", 0), ("b", 1), ("c", 2)]
    assert [one.front for one in ranked({"c": points["c"]})] == [0]


def test_a_search_is_the_same_again() -> None:
    """Only keys and records decide; another seed draws others."""
    one, two, other = World(), World(), World(config=CONFIG.model_copy(update={"seed": 1}))
    for world in (one, two, other):
        world.advance()
        world.advance()
    assert [one.search.bred(n) for n in range(2)] == [two.search.bred(n) for n in range(2)]
    assert one.search.bred(1) != other.search.bred(1)


def test_a_random_search_begins_with_the_same_mixtures() -> None:
    own, random = World(), World("random")
    for world in (own, random):
        world.advance()
        world.advance()
    assert own.search.bred(0).mixtures == random.search.bred(0).mixtures
    assert own.search.bred(1).mixtures != random.search.bred(1).mixtures
    low, high = BOUNDS
    drawn = random.search.bred(1).mixtures
    assert all(low <= factor <= high for factors in drawn for factor in factors)


def test_mixtures_that_stopped_or_gave_no_numbers_do_not_survive() -> None:
    world = World()
    world.advance()
    key = Scoring("mixtures", 0, 0, 0).key
    event = world.answers[key]
    items = ({}, {"code": (10.0,), "prose": (20.0,)}, *event.items[2:])
    world.answers[key] = event.model_copy(update={"items": items})
    del world.answers["ended/mixtures/0"]
    ended = world.search.end(0)
    assert ended.stopped == 2
    assert {"0/0", "0/1"}.isdisjoint(ended.survivors)
    assert len(ended.survivors) == 18


def test_the_last_generation_has_what_is_left() -> None:
    world = World(config=CONFIG.model_copy(update={"evaluations": 25}))
    assert [world.search.size(n) for n in range(3)] == [20, 5, 0]
    assert [(t.first, t.last) for t in world.search.tasks(0)] == [(0, 10), (10, 20)]
    assert [(t.first, t.last) for t in world.search.tasks(1)] == [(0, 5)]


def test_a_bar_is_the_given_model_and_the_survivors() -> None:
    world = World()
    world.advance()
    assert world.search.bar(0).models == ({"code": 1.0, "prose": 1.0},)
    bar = world.search.bar(1)
    assert len(bar.models) == 21
    first = world.search.ended[0].survivors[0]
    assert bar.models[1] == ratios(world.search.items(first), GIVEN, 1)
