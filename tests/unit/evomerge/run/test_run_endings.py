"""How runs end, and what keeps them going: NaN, failures, plateaus, reseeding, elites that stay."""

from __future__ import annotations

import pytest

from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.history import audit
from agent_forge.runs.kinds.decide import ATTEMPTS, NextWork, decide
from agent_forge.runs.kinds.state import evolve
from testing.worlds import fake_world
from testing.worlds.fake_world import SOURCES, World, all_alike, small


def only_sources(recipe_id: str) -> float | None:
    """Sources (and the base) are fine, every merge is NaN."""
    fine = {fake_world.BASE.id, *(s.id for s in SOURCES)}
    return fake_world.quality(recipe_id) if recipe_id in fine else None


def some_nan(recipe_id: str) -> float | None:
    """A third of the merges are NaN."""
    if only_sources(recipe_id) is not None:
        return fake_world.quality(recipe_id)
    return None if int(recipe_id[:8], 16) % 3 == 0 else fake_world.quality(recipe_id)


def test_candidates_without_fitness_are_ranked_last_and_stop_nothing():
    """A score of None killed the search elsewhere."""
    state = World(small(generations=3), quality=some_nan).run()
    assert state.completed is not None
    scores = [done.scores for done in state.generations.values()]
    assert any(None in row for row in scores)
    for row in scores:
        known = [s is not None for s in row]
        assert known == sorted(known, reverse=True)
    assert some_nan(state.completed.champion) is not None


def test_a_rival_without_fitness_has_no_lead():
    """The mean may be NaN: the report says null, not a number."""
    state = World(quality=some_nan).run()
    assert state.completed is not None
    for rival in state.completed.rivals:
        expected = some_nan(rival.recipe_id) is None
        assert (rival.scalar is None) is expected
        assert (rival.lead is None) is expected


def test_a_run_in_which_nothing_has_a_fitness_fails_saying_so():
    """After the search, not in the middle: a mutant could still have been good."""
    state = World(quality=only_sources).run()
    assert state.failed is not None
    assert "no candidate of any generation has a fitness" in state.failed.reason
    assert state.status == "failed"
    assert sorted(state.generations) == [0, 1, 2]
    assert decide(state) == NextWork()


def test_a_champion_without_a_test_score_fails_the_run():
    """It was fine on selection and overflows on test: there is nothing to report."""
    world = World()
    world.run_until(lambda state: state.converged is not None)
    champion = world.state.champion
    world.quality = lambda id_: None if id_ == champion else fake_world.quality(id_)
    state = world.run()
    assert state.failed is not None
    assert "no fitness on the test slice" in state.failed.reason


def test_a_task_that_failed_three_times_ends_the_run_with_its_reason():
    """Twice is bad luck; and it never loops."""
    world = World()
    world.step()
    for attempt in range(1, ATTEMPTS):
        world.fail("profile", attempt)
        assert not decide(world.state).facts
    world.fail("profile", ATTEMPTS)
    world.step()
    assert world.state.failed is not None
    assert world.state.failed.reason == "task profile failed 3 times: ValueError: broken"
    assert decide(world.state) == NextWork()


def test_a_run_may_fail_before_it_started():
    """Sources that cannot be read fail the run at once."""
    world = World()
    for attempt in range(1, ATTEMPTS + 1):
        world.fail("start", attempt)
    world.step()
    assert world.state.failed is not None


# ---- elites, reseeding, plateau ------------------------------------------------------------


def test_without_keep_elites_the_parents_leave_the_population():
    """Elite-loser as the documents have it: three mutants and a merge, nobody stays."""
    state = World().run()
    for generation in (1, 2):
        before = set(state.generations[generation - 1].ranking)
        assert not before & set(state.generations[generation].ranking)


def test_with_keep_elites_the_best_stays_and_is_measured_on_the_new_items():
    """(μ + λ): the elite competes with its children on the same draw."""
    state = World(small(keep_elites=True, generations=3)).run()
    assert state.completed is not None
    for generation in (1, 2, 3):
        elite = state.generations[generation - 1].ranking[0]
        done = state.generations[generation]
        assert elite in done.ranking
        assert len(done.ranking) == 5
        assert (elite, "search", generation) in state.evaluations
    best = [fake_world.quality(g.ranking[0]) for _, g in sorted(state.generations.items())]
    assert best == sorted(best, reverse=True)


def test_a_population_of_one_kind_is_reseeded():
    """Diversity 0 is critical: the loser slot of the next generation is a new random pipeline."""
    state = World(sketcher=all_alike).run()
    assert state.diversities[0].diversity == 0.0
    assert state.diversities[0].level == "critical"
    assert sorted(state.reseeded) == [1, 2]
    assert state.reseeded[1].slots == (3,)
    assert isinstance(state.candidates[1, 3], events.Seeded)
    assert isinstance(state.candidates[1, 0], events.Mutated)
    assert state.completed is not None


def test_a_diverse_population_is_not_reseeded():
    """The loser slot stays a merge of the three losers, best first."""
    state = World().run()
    assert state.diversities[0].level == "healthy"
    assert not state.reseeded
    merged = state.candidates[1, 3]
    assert isinstance(merged, events.Merged)
    assert merged.parents == state.generations[0].ranking[1:4]


@pytest.mark.parametrize(("strategy", "expected"), [("auto", 6), ("cma-es", 2)])
def test_a_plateau_is_one_after_every_stage_of_a_search(strategy: str, expected: int):
    """Auto goes from few genes to many: what stands still with few may not with more."""
    given = small(strategy=strategy, population_size=5, generations=20, convergence_patience=2)
    world = World(given, quality=lambda _: 1.0)
    state = world.run()
    assert state.converged
    assert (state.converged.generation, state.converged.reason) == (expected, "plateau")
    assert audit.audit(world.rows) == []


def test_a_plateau_ends_the_search():
    """All merges equally good: no champion after the first, so generation 2 stops at patience 2."""

    def flat(recipe_id: str) -> float:
        return 2.0

    state = World(small(generations=9, convergence_patience=2), quality=flat).run()
    assert state.converged is not None
    assert (state.converged.generation, state.converged.reason) == (2, "plateau")
    assert len(state.champions) == 1
    assert state.completed is not None


def test_the_number_of_generations_ends_the_search():
    """Also where a plateau is reached in the same moment."""
    state = World(small(generations=1)).run()
    assert state.converged is not None
    assert (state.converged.generation, state.converged.reason) == (1, "generations")
    only_first = World(small(generations=0)).run()
    assert only_first.completed is not None
    assert only_first.completed.generations == 0


def test_the_champion_changes_only_for_a_better_one():
    """Scores of successive champions rise, and each names its predecessor."""
    state = World(small(generations=6)).run()
    scores = [c.score for c in state.champions]
    assert len(scores) > 1
    assert scores == sorted(set(scores))
    previous = [c.previous for c in state.champions]
    assert previous == [None, *(c.recipe_id for c in state.champions[:-1])]


def test_ties_in_the_ranking_are_broken_by_recipe_id():
    """Never by who came first."""
    state = World(quality=lambda _: 2.0).run()
    for done in state.generations.values():
        assert list(done.ranking) == sorted(done.ranking)


def test_diversity_weight_lifts_the_distant():
    """Equal fitness, weight 1: ranked by own distance; the recorded score includes it."""
    plain = World(quality=lambda _: 2.0).run().generations[0]
    state = World(small(diversity_weight=1.0), quality=lambda _: 2.0).run()
    scores = state.generations[0].scores
    assert len(set(scores)) == len(scores)
    assert plain.scores[0] is not None
    assert all(s is not None and s > plain.scores[0] for s in scores)


def test_the_raw_formula_can_steer():
    """`normalise: none`: scores are the documents' sums, 0.4/ppl + 0.3·acc + 0.2/t + 0.1/m."""
    state = World(small(normalise="none")).run()
    assert state.completed is not None
    test = state.completed.test
    key = (state.completed.champion, "test", None)
    measured = state.components(key)
    assert measured is not None
    by_hand = 0.4 / measured.perplexity + 0.3 * measured.accuracy + 0.2 * 1e3 + 0.1 * 1e3
    assert test.scalar == pytest.approx(by_hand)


def test_the_first_source_may_stand_in_for_the_base():
    """Then it is one rival, not two."""
    world = World()
    started = world.answer(fake_world.Start())
    assert isinstance(started, events.Started)
    stand_in = started.model_copy(update={"base": started.sources[0]})
    world.append([fake_world.New(stand_in, f"{fake_world.RUN}/start")])
    state = world.run()
    assert state.completed is not None
    kinds = [rival.kind for rival in state.completed.rivals]
    assert sorted(kinds) == ["baseline"] * 4 + ["source"] * 3


def test_a_source_without_components_leaves_the_others_as_reference():
    """And with none measured there is no reference at all."""
    world = World()
    world.step()
    assert world.state.reference("search", None) is None
    for task in decide(world.state).tasks:
        if task.key.startswith("evaluate/search"):
            world.complete(task)
    best = world.state.reference("search", None)
    assert best is not None
    event = world.state.evaluations[SOURCES[0].id, "search", None]
    empty = event.model_copy(update={"components": None, "outcomes": {}})
    without: RunState = evolve(world.state, empty)
    others = [without.components((s.id, "search", None)) for s in SOURCES[1:]]
    found = without.reference("search", None)
    assert found is not None
    assert found.perplexity == min(c.perplexity for c in others if c)
