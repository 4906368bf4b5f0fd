"""Tasks that kill every process that tries them: set aside after three deaths, never a loop."""

from __future__ import annotations

import pytest

from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import fold
from agent_forge.evomerge.run.tasks import Evaluate
from agent_forge.runs.history import audit
from agent_forge.runs.kinds.controls import refusal
from agent_forge.runs.kinds.decide import DEATHS, decide
from testing.worlds.fake_world import SOURCES, World, small


def evaluation(world: World, generation: int, slot: int) -> str:
    """The task that measures a slot on the generation's draw."""
    world.run_until(lambda state: (generation, slot) in state.candidates)
    return Evaluate(world.state.candidates[generation, slot].recipe_id, "search", generation).key


def test_a_poison_task_fails_the_run_with_its_reason() -> None:
    world = World()
    state = world.poison("build/1/0")
    assert state.failed is not None
    assert "build/1/0" in state.failed.reason
    assert "signal 9" in state.failed.reason
    assert state.deaths["build/1/0"].attempt == DEATHS
    assert audit.audit(world.rows) == []


@pytest.mark.parametrize("slots", [(0,), (1, 2), (0, 1, 2)])
def test_a_slot_that_cannot_be_built_stays_empty_and_the_run_goes_on(slots: tuple[int, ...]) -> None:
    world = World(quarantine="worst-fitness")
    state = world.poison(*(f"build/1/{slot}" for slot in slots), *(f"layers/1/{s}" for s in slots))
    assert state.completed is not None
    assert sorted(slot for g, slot in state.candidates if g == 1) == sorted({0, 1, 2, 3} - {*slots})
    assert {2} <= {generation for generation, _ in state.candidates}
    assert audit.audit(world.rows) == []
    assert fold(world.rows).lineage_digest() == state.lineage_digest()


def test_a_candidate_that_cannot_be_measured_is_ranked_last() -> None:
    world = World(quarantine="worst-fitness")
    task = evaluation(world, 0, 2)
    state = world.poison(task)
    assert state.completed is not None
    worst = state.generations[0]
    assert worst.scores[-1] is None
    assert worst.ranking[-1] == state.candidates[0, 2].recipe_id
    assert audit.audit(world.rows) == []


def test_a_finalist_that_cannot_be_judged_is_no_champion() -> None:
    world = World(quarantine="worst-fitness")
    finalist = World().run_until(lambda state: 0 in state.generations).generations[0].ranking[0]
    state = world.poison(Evaluate(finalist, "selection", None).key)
    assert state.completed is not None
    assert finalist not in {champion.recipe_id for champion in state.champions}
    assert audit.audit(world.rows) == []


def test_a_generation_of_which_nothing_can_be_built_ends_the_run() -> None:
    world = World(quarantine="worst-fitness")
    state = world.poison(*(f"{kind}/1/{s}" for s in range(4) for kind in ("build", "layers")))
    assert state.failed is not None
    assert "nothing of generation 1" in state.failed.reason
    assert audit.audit(world.rows) == []


@pytest.mark.parametrize(
    "task",
    [
        "start",
        "profile",
        Evaluate(SOURCES[1].id, "search", None).key,
        Evaluate(SOURCES[0].id, "test", None).key,
    ],
)
def test_what_everything_is_compared_with_cannot_be_left_out(task: str) -> None:
    state = World(quarantine="worst-fitness").poison(task)
    assert state.failed is not None
    assert task in state.failed.reason


def test_a_baseline_or_a_rival_can_be_left_out() -> None:
    world = World(quarantine="worst-fitness")
    state = world.poison("baseline/mean")
    assert state.completed is not None
    assert "mean" not in {rival.name for rival in state.completed.rivals}
    assert audit.audit(world.rows) == []


def test_a_champion_that_cannot_be_tested_is_said() -> None:
    champion = World().run().champion
    assert champion
    state = World(quarantine="worst-fitness").poison(Evaluate(champion, "test", None).key)
    assert state.failed is not None
    assert "in quarantine" in state.failed.reason


def test_a_retry_lets_it_be_tried_again_and_the_same_champion_come_out() -> None:
    world = World()
    world.poison("build/1/0")
    retried = events.Retried()
    assert refusal(world.state, retried) is None
    from tests.golden.record import ask

    ask(world, retried)
    assert any(task.key == "build/1/0" for task in decide(world.state).tasks)
    state = world.run()
    assert state.completed is not None
    assert state.champion == World().run().champion
    assert audit.audit(world.rows) == []


def test_two_deaths_are_forgiven() -> None:
    """They leave no trace in the result."""
    world = World()
    world.die("start")
    world.die("start")
    assert world.run().lineage_digest() == World().run().lineage_digest()


def test_a_death_of_what_nobody_asked_for_is_found() -> None:
    world = World()
    world.die("build/7/0")
    assert "was not asked for" in audit.audit(world.rows)[0].message


def test_small_populations_of_any_size_go_on(  # ragged trios of losers
) -> None:
    for slots in [(0,), (1,), (2,), (3,), (1, 3)]:
        world = World(small(population_size=4, generations=3), quarantine="worst-fitness")
        state = world.poison(*(f"{kind}/0/{slot}" for slot in slots for kind in ("build", "layers")))
        assert state.completed is not None, slots
