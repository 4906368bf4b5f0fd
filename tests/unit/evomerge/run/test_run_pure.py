"""Whole runs in an invented world: what is decided depends on the log and on nothing else."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_forge.events import Event
from agent_forge.events.databases.sqlite import open_store
from agent_forge.evomerge.fitness import composite
from agent_forge.evomerge.recipes.recipe import Mutate
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import RunState, fold
from agent_forge.evomerge.run.tasks import Build, ChooseLayers, Evaluate, MeasureCost
from agent_forge.runs.kinds.decide import NextWork, Start, decide
from agent_forge.runs.kinds.state import evolve
from testing.worlds import fake_world
from testing.worlds.fake_world import BASE, RUN, SOURCES, World, small


@pytest.fixture(scope="module")
def finished() -> World:
    """A run of three generations of four, carried to its end."""
    world = World()
    world.run()
    return world


def test_a_run_ends_with_a_champion(finished: World):
    """Generation 0 and two more; every step recorded, nothing left to do."""
    state = finished.state
    assert state.completed is not None
    assert state.status == "completed"
    assert sorted(state.generations) == [0, 1, 2]
    assert state.completed.generations == 2
    assert state.completed.champion == state.champion
    assert decide(state) == NextWork()
    types = [row.type for row in finished.rows]
    assert types[0] == "submitted"
    assert types[-1] == "completed"
    assert types.count("evaluated") == len(state.evaluations)


def test_status_follows_the_log():
    """One word for lists."""
    world = World()
    assert world.state.status == "submitted"
    world.step()
    assert world.state.status == "running"


def test_the_champion_is_the_best_finalist_on_the_selection_slice(finished: World):
    """Quality follows from the recipe's id here, so the best elite is known by arithmetic."""
    state = finished.state
    elites = {generation.ranking[0] for generation in state.generations.values()}
    assert state.champion == min(elites, key=fake_world.quality)


def test_rankings_are_best_first(finished: World):
    """By fitness on the generation's draw, each candidate once."""
    for generation, done in finished.state.generations.items():
        scores = [s for s in done.scores if s is not None]
        assert scores == sorted(scores, reverse=True)
        slots = [finished.state.candidates[generation, slot].recipe_id for slot in range(4)]
        assert sorted(done.ranking) == sorted(slots)


def test_candidates_of_a_generation_share_their_items_and_the_next_gets_others(finished: World):
    """Comparing on different items was a defect elsewhere; fixed items are the winner's curse."""
    draws = [finished.state.draws("search", g) for g in range(3)]
    assert draws[0] != draws[1]
    for (_, slice_, generation), event in finished.state.evaluations.items():
        if slice_ == "search" and generation is not None:
            drawn = draws[generation]
            assert {d: len(o.nll) for d, o in event.outcomes.items()} == {
                d: len(x.windows) for d, x in drawn.items()
            }


def test_the_report_compares_with_base_sources_and_baselines_on_the_test_slice(finished: World):
    """Three sources, the base, the mean and three task arithmetics; each with an interval."""
    completed = finished.state.completed
    assert completed is not None
    kinds = [rival.kind for rival in completed.rivals]
    assert sorted(kinds) == ["base"] + ["baseline"] * 4 + ["source"] * 3
    assert all(r.lead is not None and r.scalar is not None for r in completed.rivals)
    for rival in completed.rivals:
        better = fake_world.quality(completed.champion) < fake_world.quality(rival.recipe_id)
        assert rival.lead is not None
        assert (rival.lead.difference > 0) is better
    assert completed.chain_head == finished.rows[-2].hash
    assert completed.lineage_digest == finished.state.lineage_digest()


def test_the_test_slice_is_read_once_by_the_final_report():
    """No evaluation on test before the search has ended."""
    world = World()
    world.run_until(lambda state: state.converged is not None)
    assert not [key for key in world.state.evaluations if key[1] == "test"]
    world.run()
    tested = [key for key in world.state.evaluations if key[1] == "test"]
    assert len(tested) == 3 + 1 + 1 + 4  # sources, base, champion, baselines


def test_a_source_is_measured_whole_and_its_draws_are_taken_from_that(finished: World):
    """A second measurement per generation would cost three evaluations and say the same."""
    state = finished.state
    assert not [k for k in state.evaluations if k[0] == SOURCES[0].id and k[2] is not None]
    drawn = state.components((SOURCES[0].id, "search", 1))
    whole = state.components((SOURCES[0].id, "search", None))
    assert drawn is not None
    assert drawn != whole
    seen = state.outcomes((SOURCES[0].id, "search", 1))
    assert seen is not None
    assert drawn == composite.components(seen, 1e6, 1e6)
    assert state.fitness((SOURCES[0].id, "search", 1)) is not None


def test_what_was_not_measured_is_none(finished: World):
    """Not zero, not an error."""
    state = finished.state
    assert state.outcomes(("nobody", "search", 0)) is None
    assert state.components(("nobody", "search", 0)) is None
    assert state.fitness(("nobody", "search", 0)) is None


# ---- order and purity ----------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_completions_does_not_matter(finished: World, random: object):
    """Workers finish as they like: lineage, rankings, champion and all decisions stay the same."""
    reference, other = World(), World()
    for _ in range(400):
        if reference.state.ended:
            break
        wanted = decide(reference.state)
        found = decide(other.state)
        assert [f.key for f in found.facts] == [f.key for f in wanted.facts]
        assert {t.key for t in found.tasks} == {t.key for t in wanted.tasks}
        reference.step()
        other.step(lambda tasks: random.sample(tasks, len(tasks)))  # pyright: ignore
        assert other.state.lineage_digest() == reference.state.lineage_digest()
    assert other.state.generations == finished.state.generations
    assert other.state.champions == finished.state.champions
    assert other.state.completed is not None
    assert finished.state.completed is not None
    assert other.state.completed.rivals == finished.state.completed.rivals


def test_the_order_of_completions_does_not_reach_the_order_of_tasks():
    """The next decision is the same list, not only the same set: state must not remember order."""
    lists = []
    for order in (list, lambda tasks: tasks[::-1]):
        world = World()
        seen = []
        while not world.state.ended:
            seen.append([task.key for task in decide(world.state).tasks])
            world.step(order)
        lists.append(seen)
    assert lists[0] == lists[1]


def test_evolve_does_not_change_its_argument(finished: World):
    """Replay shows the state at any event; an aliased dictionary would show a later one."""
    state = RunState()
    for row in finished.rows:
        before = deepcopy(state)
        after = evolve(state, events.REGISTRY.load(row))
        assert state == before
        state = after
    folded = fold(finished.rows)
    assert state.generations == folded.generations
    assert state.evaluations == folded.evaluations
    assert state.champions == folded.champions


def test_folding_in_two_parts_is_folding_at_once(finished: World):
    """A worker absorbs what is new; the state is that of the whole log."""
    whole = fold(finished.rows)
    for cut in (1, 5, len(finished.rows) // 2):
        parts = fold(finished.rows[:cut]).absorb(finished.rows[cut:])
        assert parts == whole
    assert whole.version == len(finished.rows)
    assert whole.head == finished.rows[-1].hash


def test_every_prefix_of_the_log_can_go_on_to_the_same_end(finished: World):
    """Resume is nothing but reading the log: killed anywhere, the run ends alike."""
    wanted = finished.state.lineage_digest()
    for cut in range(1, len(finished.rows), 7):
        world = World()
        world.rows = finished.rows[:cut]
        world.state = fold(world.rows)
        world.run()
        assert world.state.lineage_digest() == wanted


def test_the_log_in_a_store_folds_to_the_same_state(finished: World, tmp_path: Path):
    """Through SQLite and JSON and back, position and hashes apart."""
    store = open_store(tmp_path / "log.db")
    for row in finished.rows:
        event = events.REGISTRY.load(row)
        store.append("evomerge/" + RUN, row.version - 1, [fake_world.New(event, row.key)])
    state = fold(store.read("evomerge/" + RUN))
    store.close()
    assert state.completed == finished.state.completed
    assert state.lineage_digest() == finished.state.lineage_digest()


def test_luck_does_not_reach_the_lineage(finished: World):
    """Seconds differ on every machine; so do a failed attempt, names, places and warnings."""
    wanted = finished.state.lineage_digest()
    world = World()
    world.fail("start", 1)
    slow = world.answer(Start()).model_copy(update={"warnings": ("slow",)})
    world.append([fake_world.New(slow, f"{RUN}/start")])

    answer = world.answer

    def slower(task: object) -> Event:
        event = answer(task)  # pyright: ignore[reportArgumentType]
        return event.model_copy(update={"seconds": 99.0})

    world.answer = slower
    world.run()
    assert world.state.lineage_digest() == wanted
    assert finished.state.lineage_digest() != World(small(seed=4)).run().lineage_digest()


def test_unknown_events_are_refused():
    """A newer log read by older code must not be half understood."""

    class Strange(Event):
        type = "strange"

    with pytest.raises(TypeError, match="strange is not an event of a merging run"):
        evolve(RunState(), Strange())


def test_a_run_begins_with_submitted():
    """There is no decision before there is a run."""
    with pytest.raises(ValueError, match="begins with `submitted`"):
        decide(RunState())


def test_a_divergence_is_remembered_and_changes_nothing_else(finished: World):
    """The promise was broken: the report must say so, the run goes on."""
    event = events.DivergenceDetected(task="x", recorded="1", found="2")
    after = evolve(finished.state, event)
    assert after.divergences == [event]
    assert after.lineage_digest() == finished.state.lineage_digest()


# ---- what is asked for when ----------------------------------------------------------------


def test_a_run_starts_then_measures_sources_and_builds_baselines():
    """Start alone first; then the profile, 3 × 2 source scores and 4 baselines."""
    world = World()
    assert world.step().tasks == [Start()]
    keys_ = [task.key for task in decide(world.state).tasks]
    assert keys_[0] == MeasureCost().key
    assert sorted(k for k in keys_ if k.startswith("baseline/")) == [
        "baseline/mean",
        "baseline/task-arithmetic-0.3",
        "baseline/task-arithmetic-0.5",
        "baseline/task-arithmetic-1",
    ]
    assert sum(k.startswith("evaluate/search/all/") for k in keys_) == 3
    assert sum(k.startswith("evaluate/selection/all/") for k in keys_) == 3
    assert len(keys_) == 1 + 4 + 6


def test_open_layers_are_chosen_before_a_candidate_is_built():
    """Frankenmerge needs a measurement; its recipe exists only afterwards."""
    world = World(small(techniques=["linear", "ties", "frankenmerge"]))
    world.run_until(lambda state: len(state.baselines) == 4)
    first = decide(world.state).tasks
    assert {type(task) for task in first} == {ChooseLayers}
    for task in first:
        world.complete(task)
    for task in decide(world.state).tasks:
        assert isinstance(task, Build)
        pipeline = task.proposal.pipeline
        assert pipeline is not None
        chosen = world.state.layers[0, task.proposal.slot]
        assert pipeline.genes.layers == chosen.layers
    world.run()
    assert world.state.completed is not None


def test_the_base_is_measured_on_test_only():
    """It takes no slot; its score matters at the end."""
    world = World()
    world.run()
    assert [k[1] for k in world.state.evaluations if k[0] == BASE.id] == ["test"]


def test_mutants_carry_noise_that_the_config_asks_for():
    """Both kinds of mutation by default: a pipeline and a noise."""
    world = World()
    world.run_until(lambda state: (1, 0) in state.candidates)
    recipe = world.state.candidates[1, 0].recipe
    assert isinstance(recipe, Mutate)
    assert recipe.noise is not None
    assert recipe.pipeline is not None


def test_evaluations_are_asked_for_once():
    """A recipe in two roles is one measurement."""
    world = World()
    world.run_until(lambda state: state.ended)
    asked = [row.key for row in world.rows if row.type == "evaluated"]
    assert len(asked) == len(set(asked))
    assert Evaluate("x", "search", None).key == "evaluate/search/all/x"


def test_sources_of_one_name_are_still_several():
    """Folders are called `model` everywhere; what is compared with must not be one of them less."""
    world = World()
    state = world.run_until(lambda s: s.generation == 1)
    assert state.started
    alike = tuple(s.model_copy(update={"name": "model"}) for s in state.started.sources)
    state.started = state.started.model_copy(update={"sources": alike})
    assert len(state.sources_on("search", state.draws("search", 0))) == len(alike) > 1
