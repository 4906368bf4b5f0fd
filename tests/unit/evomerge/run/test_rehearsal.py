"""The estimate's counts are those of the run that then happens; its earnings add up."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.evomerge.reports import search_statistics
from agent_forge.evomerge.run import state as budget
from agent_forge.evomerge.run.views.outlook import rehearse
from agent_forge.evomerge.search.strategies.elite_loser import EliteLoser
from testing.worlds.fake_world import World, small

NAMES = ("elite-loser", "tournament", "cma-es", "nsga2", "auto")


def config(name: str, **changes: object):
    return small(**{"strategy": name, "population_size": 4 if name == "elite-loser" else 6, **changes})


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("limits", [{}, {"max_items": 500, "generations": 90}], ids=["all", "budget"])
def test_a_rehearsal_counts_what_a_run_does(name: str, limits: dict) -> None:
    world = World(config(name, **limits))
    given = world.state.submitted
    world.run()
    state = world.state
    assert given
    assert state.started
    tally = rehearse(given, state.started)
    assert abs(tally.generations - len(state.generations)) <= len(limits) / 2
    assert state.converged
    assert tally.reason == state.converged.reason
    rows = [row.type for row in world.rows]
    kinds = ("baseline_built", "seeded", "merged", "mutated", "sampled", "crossed")
    builds = sum(map(rows.count, kinds))
    assert tally.tasks["start"] == tally.tasks["profile"] == 1
    counted = sum(budget.items(e.outcomes) for e in state.evaluations.values())
    asked = sum(tally.tasks[f"evaluate {s}"] for s in ("search", "selection", "test"))
    if limits:  # whether one more generation fits may hang on a finalist
        assert tally.items.total() == pytest.approx(counted, rel=0.35)
    elif name in ("elite-loser", "nsga2"):  # which candidates need layers, or are a front, is luck
        assert tally.tasks["build"] == pytest.approx(builds, rel=0.2)
        assert tally.items.total() == pytest.approx(counted, rel=0.35)
    else:
        assert tally.tasks["build"] == pytest.approx(builds, abs=2)
        assert asked == pytest.approx(rows.count("evaluated"), abs=3)
        assert tally.items.total() == pytest.approx(counted, rel=0.1)


def test_nothing_of_a_rehearsal_is_luck() -> None:
    world = World(config("auto"))
    world.step()
    assert world.state.submitted
    assert world.state.started
    twice = [rehearse(world.state.submitted, world.state.started) for _ in range(2)]
    assert twice[0] == twice[1]


@pytest.mark.parametrize("name", NAMES)
def test_every_candidate_is_in_the_table_of_techniques(name: str) -> None:
    state = World(config(name, generations=4)).run()
    rows = search_statistics.techniques(state)
    ranked = {
        (g, c.recipe_id)
        for (g, _), c in state.candidates.items()
        if c.recipe_id in state.generations[g].ranking
    }
    assert sum(row["candidates"] for row in rows) >= len(ranked)
    assert sum(row["champions"] for row in rows) == len(state.champions)
    assert all(row["better_half"] <= row["candidates"] for row in rows)
    best = max(row["best"] for row in rows if row["best"] is not None)
    assert best == pytest.approx(state.champions[-1].score)


def test_a_gene_that_decides_is_told_first() -> None:
    """Nats a token grow with the first source's weight on everything."""

    class World1(World):
        def rate(self, id_: str) -> float:
            recipe = self.state.recipes.get(id_)
            if recipe is None or recipe.kind != "grouped":
                return 2.0
            return 1.5 + recipe.params[0]["weights"][0] / 4

        def answer(self, task):
            self.quality = self.rate
            return super().answer(task)

    world = World1(config("cma-es", genome_detail="whole", population_size=8))
    state = world.run()
    rows = search_statistics.genes(state)
    assert {row["gene"].split(" ", 1)[1] for row in rows} == {"weights a", "weights b", "weights c"}
    assert {row["gene"].split(" ", 1)[1] for row in rows[:5]} == {"weights a"}
    assert rows[0]["correlation"] == pytest.approx(-1.0)
    parts = search_statistics.parts(state)  # what the page draws beside them has the same names
    assert state.champion in parts
    assert {row["gene"] for row in rows} <= set(parts[state.champion])


def test_ranks_and_correlations_by_hand() -> None:
    assert search_statistics._ranks([3.0, 1.0, 3.0]) == [1.5, 0.0, 1.5]
    assert search_statistics._pooled([([1.0, 2.0, 3.0], [10.0, 20.0, 30.0])]) == pytest.approx(1.0)
    assert search_statistics._pooled(
        [([1.0, 2.0], [5.0, 6.0]), ([1.0, 2.0], [6.0, 5.0])]
    ) == pytest.approx(0.0)
    assert search_statistics._pooled([([1.0, 1.0], [5.0, 6.0])]) is None


@given(st.lists(st.floats(-1, 1) | st.sampled_from([-0.0, 0.0, 0.5, math.inf]), max_size=40))
def test_a_rank_counts_the_smaller_values_and_half_of_the_other_equal_ones(values: list[float]) -> None:
    """The definition, value by value; equal figures, so that no report changes."""
    by_hand = [sum(b < a for b in values) + (values.count(a) - 1) / 2 for a in values]
    assert search_statistics._ranks(values) == by_hand


def test_the_front_of_a_run_dominates_the_others() -> None:
    state = World(config("nsga2", generations=5)).run()
    found = search_statistics.front(state)
    assert found
    assert found["candidates"]
    assert found["hypervolume"] >= 0
    assert len(found["objectives"]) == len(found["reference"]) == 2


def test_candidates_of_a_run_without_genes_have_none() -> None:
    state = World(config("elite-loser")).run()
    assert search_statistics.genes(state) == []
    assert EliteLoser.version == "elite-loser@1"
