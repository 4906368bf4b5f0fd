"""Forks: a past by reference, a future of one's own, and the same end where nothing was changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from agent_forge.events import EventStore
from agent_forge.events.databases.sqlite import open_store
from agent_forge.evomerge import search
from agent_forge.evomerge.run.rules.fork_rules import FIXED, WITH_STRATEGY
from agent_forge.evomerge.run.state import RunState, fold
from agent_forge.runs.errors import ConfigError, NotFoundError, TamperedError
from agent_forge.runs.history import audit, repository
from agent_forge.runs.streams import stream
from agent_forge.worker.commands.fork import fork, plan
from agent_forge.worker.tasks import verify_run
from testing.worlds import fake_runs
from testing.worlds.fake_world import RUN


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    store = open_store(tmp_path / "log.db")
    fake_runs.whole(store)
    yield store
    store.close()


def branch(store: EventStore, run: str = RUN, **where) -> str:
    """Fork; the new run's name."""
    where = {"place": None, "generation": None, "changes": {}, **where}
    return fork(store, plan(store, run, **where))


def finished(store: EventStore, run: str) -> RunState:
    """The fork, carried to its end."""
    return fake_runs.finish(store, run)


@pytest.mark.slow
def test_a_fork_without_changes_ends_where_the_original_ended(store: EventStore) -> None:
    """From any place where the history may be cut."""
    original = repository.load(store, RUN)
    rows = list(repository.history(store, RUN))
    for place in range(1, len(rows), 5):
        if rows[place].causation is not None:
            continue
        fork_ = branch(store, place=place)
        state = finished(store, fork_)
        assert state.lineage_digest() == original.lineage_digest(), place
        assert state.champion == original.champion
        assert state.completed
        assert state.completed.lineage_digest == original.lineage_digest()
        assert audit.audit(list(repository.history(store, fork_))) == []


def test_a_fork_copies_no_events(store: EventStore) -> None:
    name = branch(store, generation=1)
    assert store.version(stream("evomerge", name)) == 1
    state = repository.load(store, name)
    assert state.run == name
    assert state.generation == 1
    assert state.forked
    assert state.forked.parent == RUN


def test_a_fork_of_a_fork_reaches_the_same_end(store: EventStore) -> None:
    original = repository.load(store, RUN)
    first = branch(store, generation=0)
    fake_runs.finish(store, first, lambda state: state.generation == 2)
    second = branch(store, first, generation=1)
    third = branch(store, second, place=len(list(repository.history(store, second))))
    state = finished(store, third)
    assert state.lineage_digest() == original.lineage_digest()
    assert audit.audit(list(repository.history(store, third))) == []
    assert len(list(repository.history(store, third))) > len(list(repository.history(store, RUN)))


def test_a_place_in_the_past_of_a_fork_belongs_to_the_run_that_recorded_it(store) -> None:
    first = branch(store, generation=1)
    again = branch(store, first, place=5)
    state = repository.load(store, again)
    assert state.forked
    assert (state.forked.parent, state.forked.version) == (RUN, 5)


def test_a_longer_search_goes_on_from_the_last_generation(store: EventStore) -> None:
    """What most people fork for."""
    name = branch(store, generation=2, changes={"generations": 4})
    state = finished(store, name)
    original = repository.load(store, RUN)
    assert state.completed
    assert len(state.generations) == 5
    for generation in range(3):
        assert state.generations[generation] == original.generations[generation]
    assert state.lineage_digest() != original.lineage_digest()
    assert audit.audit(list(repository.history(store, name))) == []


def test_another_seed_changes_the_next_candidates_and_not_those_that_are_there(store) -> None:
    name = branch(store, generation=0, changes={"seed": 77})
    state = finished(store, name)
    original = repository.load(store, RUN)
    mine = {k: c.recipe_id for k, c in state.candidates.items()}
    theirs = {k: c.recipe_id for k, c in original.candidates.items()}
    assert {k: v for k, v in mine.items() if k[0] == 0} == {
        k: v for k, v in theirs.items() if k[0] == 0
    }
    assert not {v for k, v in mine.items() if k[0] == 1} & {v for k, v in theirs.items() if k[0] == 1}
    assert audit.audit(list(repository.history(store, name))) == []


def test_a_change_in_the_middle_of_a_generation_counts_from_the_next(store: EventStore) -> None:
    """Half a generation drawn by one seed and half by another would be no generation."""
    rows = list(repository.history(store, RUN))
    place = next(i for i, row in enumerate(rows) if row.type == "mutated") + 1
    name = branch(store, place=place, changes={"seed": 77, "search_windows": 2})
    state = finished(store, name)
    original = repository.load(store, RUN)
    assert state.generations[1] == original.generations[1]
    assert state.candidates[2, 0].recipe_id != original.candidates[2, 0].recipe_id
    assert audit.audit(list(repository.history(store, name))) == []


def test_a_fork_of_what_has_not_started_takes_every_setting(store: EventStore) -> None:
    name = branch(store, place=1, changes={"population_size": 8, "elite_size": 2})
    state = finished(store, name)
    assert len([1 for g, _ in state.candidates if g == 0]) == 8


def test_a_kept_elite_that_was_measured_has_begun_its_generation(tmp_path: Path) -> None:
    """Its score is on the old draw: the new candidates of that generation must be too."""
    from agent_forge.events import New
    from agent_forge.evomerge.run.tasks import Evaluate
    from agent_forge.runs.kinds.decide import decide
    from testing.worlds.fake_world import World

    store = open_store(tmp_path / "kept.db")
    fake_runs.submit(store, keep_elites=True)
    state = fake_runs.finish(store, RUN, lambda state: state.generation == 1)
    (kept,) = [task for task in decide(state).tasks if isinstance(task, Evaluate)]
    world = World()
    world.state = state
    store.append(stream("evomerge", RUN), None, [New(world.answer(kept), f"{RUN}/{kept.key}")])
    place = repository.load(store, RUN).place
    name = branch(store, place=place, changes={"search_windows": 1})
    assert [first for first, _ in repository.load(store, name).eras] == [0, 2]
    finished(store, name)
    assert audit.audit(list(repository.history(store, name))) == []
    store.close()


def test_old_names_of_settings_are_understood(store: EventStore) -> None:
    plan_ = plan(store, RUN, None, 2, {"max_generations": 7})
    assert plan_.changes == {"generations": 7}


def test_a_change_to_the_value_that_it_has_is_none(store: EventStore) -> None:
    name = branch(store, generation=1, changes={"seed": 3})
    assert finished(store, name).lineage_digest() == repository.load(store, RUN).lineage_digest()


@pytest.mark.parametrize("setting", sorted(FIXED | WITH_STRATEGY))
def test_settings_that_the_past_depends_on_stay(store: EventStore, setting: str) -> None:
    values = {
        "population_size": {"population_size": 8, "elite_size": 2},
        "elite_size": {"population_size": 8, "elite_size": 2},
        "mutants_per_elite": {"population_size": 5, "elite_size": 2, "mutants_per_elite": 2},
        "fitness_weights": {
            "fitness_weights": {"perplexity": 1, "accuracy": 0, "speed": 0, "memory": 0}
        },
        "normalise": {"normalise": "none"},
        "skills": {"skills": "geometric"},
        "context": {"context": 16},
        "device": {"device": "cuda:0"},
        "batch_tokens": {"batch_tokens": 64},
        "allow_benchmarks": {"allow_benchmarks": True},
        "evaluation_dtype": {"evaluation_dtype": "bfloat16"},
        "evaluation_compile": {"evaluation_compile": "probe"},
        "strict": {"strict": True},
        "species": {"species": ["ties"]},
        "layer_groups": {"layer_groups": 2},
        "genome_detail": {"genome_detail": "parts"},
        "search_sigma": {"search_sigma": 0.2},
        "path_repeats": {"path_repeats": 1, "strategy": "cma-es", "population_size": 5},
        "path_blocks": {"path_blocks": 4},
    }
    run = RUN
    if setting in ("species", "layer_groups", "genome_detail", "search_sigma", "path_blocks"):
        own = {"strategy": "cma-es", "population_size": 5, "path_repeats": 1}
        run = fake_runs.submit(store, "cma", **own)
        fake_runs.finish(store, run, lambda state: state.generation == 2)
    with pytest.raises(ConfigError, match="cannot change in a fork"):
        plan(store, run, None, 1, values[setting])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["auto", "tournament", "cma-es", "nsga2", "elite-loser"])
def test_a_fork_may_go_on_with_another_strategy(store: EventStore, name: str) -> None:
    """From every other one: what the run was bred by then does not matter to the next."""
    for before in ("elite-loser", "auto", "tournament"):
        if before == name:
            continue
        first = RUN
        if before != "elite-loser":
            changes = {"strategy": before, "population_size": 6, "generations": 4}
            first = branch(store, generation=1, changes=changes)
            finished(store, first)
        size = 4 if name == "elite-loser" else 5
        own = {"elite_size": 1} if name in ("elite-loser", "tournament") else {}  # auto has no elite
        changes = {"strategy": name, "population_size": size, "generations": 5, **own}
        fork_ = branch(store, run=first, generation=2, changes=changes)
        state = finished(store, fork_)
        assert state.completed, state.failed
        assert state.version_of(2) != state.version_of(3) == search.current(state.settings(3))
        assert len([c for g, c in state.candidates if g == 4]) >= size - 1
        assert audit.audit(list(repository.history(store, fork_))) == []


def test_a_fork_cannot_leave_paths_to_a_strategy_without_them(store: EventStore) -> None:
    """Auto has no setting for paths, but the candidates that it would begin with have them."""
    own = {"strategy": "cma-es", "population_size": 5, "path_repeats": 1}
    run = fake_runs.submit(store, "paths", **own)
    fake_runs.finish(store, run, lambda state: state.generation == 2)
    with pytest.raises(ConfigError, match="path_repeats cannot change in a fork"):
        plan(store, run, None, 1, {"strategy": "auto"})


def test_a_fork_refuses_a_setting_that_its_strategy_lacks(store: EventStore) -> None:
    """It would have changed nothing."""
    with pytest.raises(ConfigError, match="niching belongs to tournament, not to strategy elite-loser"):
        plan(store, RUN, None, 1, {"niching": "both"})


def test_places_without_a_future_are_refused(store: EventStore) -> None:
    rows = list(repository.history(store, RUN))
    with pytest.raises(ConfigError, match="has no future"):
        plan(store, RUN, len(rows), None, {})
    with pytest.raises(ConfigError, match="settings change nothing"):
        plan(store, RUN, len(rows) - 1, None, {"generations": 9})
    with pytest.raises(NotFoundError):
        plan(store, RUN, None, 3, {})
    with pytest.raises(NotFoundError):
        plan(store, "nothing", 1, None, {})
    for both in ((None, None), (3, 1)):
        with pytest.raises(ConfigError, match="one of them"):
            plan(store, RUN, *both, {})
    with pytest.raises(ConfigError, match="is not known"):
        plan(store, RUN, 3, None, {"colour": 1})
    assert len(store.streams()) == 1


def test_a_failed_run_is_tried_again_by_a_fork(tmp_path: Path) -> None:
    """What it tried in vain does not count any more."""
    from agent_forge.events import New
    from agent_forge.evomerge.run import events

    store = open_store(tmp_path / "failed.db")
    fake_runs.submit(store)
    for attempt in (1, 2, 3):
        event = events.TaskFailed(task="start", attempt=attempt, error="disk")
        store.append(stream("evomerge", RUN), None, [New(event, f"{RUN}/start/failed/{attempt}")])
    state = fake_runs.finish(store)
    assert state.failed
    name = branch(store, place=state.place)
    again = finished(store, name)
    assert again.completed
    assert again.lineage_digest() == fake_runs.whole(store, "other").lineage_digest()
    store.close()


def tamper(store: EventStore, statement: str) -> None:
    """Change the log behind the guards' back."""
    with store.database.writing() as connection:
        for name in ("events_no_update", "events_no_delete"):
            connection.execute(text(f"DROP TRIGGER {name}"))
        connection.execute(text(statement))


def test_a_past_that_was_changed_is_not_forked(store: EventStore) -> None:
    tamper(store, "UPDATE events SET actor = 'mallory' WHERE version = 3")
    with pytest.raises(TamperedError, match="event 3"):
        plan(store, RUN, 10, None, {})


def test_a_past_that_is_gone_is_said(store: EventStore) -> None:
    name = branch(store, place=20)
    tamper(store, f"DELETE FROM events WHERE stream = 'evomerge/{RUN}' AND version > 10")
    with pytest.raises(TamperedError, match="which is not there as it was"):
        repository.load(store, name)
    assert fold(repository.history(store, RUN)).place == 10
    rows = list(repository.history(store, RUN))
    found = audit.audit(rows, verify_run.anchors(store, RUN))
    assert any("events 11 to 20" in f.message and name in f.message for f in found)
