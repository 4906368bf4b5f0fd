"""Pause, resume, cancel, retry, priority, submission under a key: events that every process obeys."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from agent_forge import ask
from agent_forge.api.mcp.resources import BY_NAME
from agent_forge.api.routes.control import router
from agent_forge.cli.main import COMMANDS
from agent_forge.events import EventStore, New
from agent_forge.events.databases.sqlite import open_store
from agent_forge.evomerge.run import events as run_events
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.errors import ConfigError, ConflictError, NotFoundError, RunCancelledError
from agent_forge.runs.history import audit, repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds import FURTHER
from agent_forge.runs.kinds.controls import CONTROLS as TABLE
from agent_forge.runs.kinds.controls import refusal
from agent_forge.runs.kinds.decide import decide, due
from agent_forge.runs.lists import queries
from agent_forge.runs.record import events
from agent_forge.runs.record.events import WISHES as CONTROLS
from agent_forge.runs.record.events import Described
from agent_forge.runs.streams import stream
from agent_forge.worker.commands.control import control
from testing.models.toys import Toys
from testing.toy import toy_runs
from testing.toy.toy_kind import KNOWN
from testing.waiting import PATIENCE, wait_until
from testing.worlds import fake_runs, runs
from testing.worlds.fake_world import RUN, SOURCES
from testing.worlds.warm_process import Template
from tests.integration.kinds.test_commands import call

SOURCE_IDS = {source.id for source in SOURCES}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    store = open_store(tmp_path / "log.db")
    fake_runs.submit(store)
    yield store
    store.close()


def half(store: EventStore) -> RunState:
    """The run after its first generation."""
    return fake_runs.finish(store, RUN, lambda state: state.generation == 1)


def test_a_paused_run_has_nothing_to_do_and_goes_on_where_it_was(store: EventStore) -> None:
    wanted = due(half(store))
    control(store, RUN, run_events.Paused(reason="lunch"))
    paused = repository.load(store, RUN)
    assert paused.status == "paused"
    assert not decide(paused).tasks
    assert not decide(paused).facts
    assert due(paused) == wanted
    control(store, RUN, run_events.Resumed())
    state = fake_runs.finish(store)
    undisturbed = fake_runs.whole(store, "other")
    assert state.lineage_digest() == undisturbed.lineage_digest()
    assert audit.audit(list(repository.history(store, RUN))) == []


def test_a_task_that_was_under_way_ends_while_its_run_is_paused(store: EventStore) -> None:
    """It is recorded, and an audit finds nothing wrong with that."""
    from testing.worlds.fake_world import World

    state = half(store)
    task = decide(state).tasks[0]
    control(store, RUN, run_events.Paused())
    world = World()
    world.state = state
    store.append(stream("evomerge", RUN), None, [New(world.answer(task), f"{RUN}/{task.key}")])
    control(store, RUN, run_events.Resumed())
    fake_runs.finish(store)
    assert audit.audit(list(repository.history(store, RUN))) == []


def test_a_cancelled_run_has_ended(store: EventStore) -> None:
    half(store)
    control(store, RUN, run_events.Cancelled(reason="wrong data"))
    state = repository.load(store, RUN)
    assert (state.status, state.ended) == ("cancelled", True)
    assert not decide(state).tasks
    assert queries.queue(store) == []


def test_a_failed_run_is_tried_again_and_may_fail_again(store: EventStore) -> None:
    """Attempts are counted anew, and keys do not collide with those of before."""
    for round_ in (1, 2):
        for attempt in (1, 2, 3):
            number = 3 * (round_ - 1) + attempt
            event = run_events.TaskFailed(task="start", attempt=number, error="disk")
            key = f"{RUN}/start/failed/{number}"
            assert store.append(stream("evomerge", RUN), None, [New(event, key)]).fresh
            assert bool(due(repository.load(store, RUN)).facts) is (attempt == 3)
        assert fake_runs.finish(store).failed
        control(store, RUN, run_events.Retried())
        assert repository.load(store, RUN).status == "submitted"
    state = fake_runs.finish(store)
    assert state.completed
    assert state.lineage_digest() == fake_runs.whole(store, "other").lineage_digest()
    assert audit.audit(list(repository.history(store, RUN))) == []


def test_a_run_without_any_fitness_fails_again_after_a_retry(tmp_path: Path) -> None:
    """Its second `failed` needs a key of its own, or nothing would ever be appended again."""
    from testing.worlds.fake_world import World, small

    world = World(small(), quality=lambda id_: None if id_ not in SOURCE_IDS else 2.0)
    world.run()
    assert world.state.failed
    first = world.rows[-1].key
    world.append([New(run_events.Retried(), f"{RUN}/retried/1")])
    world.run()
    assert world.state.failed
    assert world.rows[-1].key != first
    assert audit.audit(world.rows) == []


def test_two_that_ask_at_once_are_both_recorded(store: EventStore) -> None:
    """A key that only named the version would take the second for the first."""
    control(store, RUN, run_events.PriorityChanged(priority=5))
    control(store, RUN, run_events.PriorityChanged(priority=7))
    rows = store.read(stream("evomerge", RUN))
    assert len({row.key for row in rows}) == len(rows) == 3
    assert repository.load(store, RUN).priority == 7


@pytest.mark.parametrize(
    ("before", "event", "why"),
    [
        ([], run_events.Resumed(), "it is not paused"),
        ([run_events.Paused()], run_events.Paused(), "it is paused already"),
        ([], run_events.Retried(), "nothing of it has failed"),
        ([run_events.Cancelled()], run_events.Paused(), "it is cancelled"),
        ([run_events.Cancelled()], run_events.Cancelled(), "it is cancelled"),
        ([run_events.Cancelled()], run_events.Retried(), "it is cancelled"),
        ([run_events.Cancelled()], run_events.PriorityChanged(priority=1), "it is cancelled"),
    ],
)
def test_what_makes_no_sense_is_refused_and_not_recorded(store, before, event, why) -> None:
    for one in before:
        control(store, RUN, one)
    version = store.version(stream("evomerge", RUN))
    with pytest.raises(ConflictError, match=why):
        control(store, RUN, event)
    assert store.version(stream("evomerge", RUN)) == version


def test_a_forged_control_is_found(store: EventStore) -> None:
    """Two resumes in a row cannot have been recorded by this program."""
    store.append(stream("evomerge", RUN), None, [New(run_events.Resumed(), f"{RUN}/resumed/2")])
    (found,) = audit.audit(list(repository.history(store, RUN)))
    assert "the run could not be resumed: it is not paused" in found.message


def test_every_control_is_refused_on_a_completed_run(store: EventStore) -> None:
    state = fake_runs.finish(store)
    exported = run_events.Exported(recipe_id="a", folder="b", digest="c" * 64)
    needed = {
        run_events.PriorityChanged: {"priority": 1},
        run_events.Imported: {"owner": "ada", "head": state.head},
    }
    for cls in set(CONTROLS) - {run_events.Exported, Described}:
        event = cls(**needed.get(cls, {}))
        assert refusal(state, event) == "it has completed"
    assert refusal(state, exported) is None
    assert refusal(state, Described(name="best")) is None


def test_an_export_is_recorded_after_the_end_and_changes_nothing(store: EventStore) -> None:
    """The lineage, what was spent and the audit are those of the run; before its end it is refused."""
    state = repository.load(store, RUN)
    exported = run_events.Exported(recipe_id="a", folder="b", digest="c" * 64, reason="for ada")
    assert refusal(state, exported) == f"it is {state.status} and has no champion yet"
    state = fake_runs.finish(store)
    control(store, RUN, exported, by="ada")
    after = repository.load(store, RUN)
    assert (after.lineage_digest(), after.spent) == (state.lineage_digest(), state.spent)
    rows = list(repository.history(store, RUN))
    assert (rows[-1].actor, rows[-1].type) == ("ada", "exported")
    assert audit.audit(rows) == []


def test_the_queue_has_the_highest_priority_first_then_the_oldest(store: EventStore) -> None:
    for name in ("b", "c"):
        fake_runs.submit(store, name)
    control(store, "c", run_events.PriorityChanged(priority=5))
    control(store, "b", run_events.Paused())
    rows = queries.queue(store)
    assert [(r["run"], r["priority"], r["status"]) for r in rows] == [
        ("c", 5, "submitted"),
        (RUN, 0, "submitted"),
        ("b", 0, "paused"),
    ]


def test_a_fork_of_a_cancelled_or_paused_run_goes_on(store: EventStore) -> None:
    from agent_forge.worker.commands.fork import fork, plan

    half(store)
    control(store, RUN, run_events.Paused())
    control(store, RUN, run_events.Cancelled())
    place = repository.load(store, RUN).place
    name = fork(store, plan(store, RUN, place, None, {}))
    state = fake_runs.finish(store, name)
    assert state.completed
    (row,) = [row for row in queries.page(store, None)[0] if row["run"] == name]
    assert row["status"] == "completed"


# ---- as users do it --------------------------------------------------------------------------


def test_the_commands_say_what_they_did(tmp_path: Path) -> None:
    home = Home(tmp_path)
    store = home.open_store()
    fake_runs.submit(store, "r")
    store.close()
    assert call(home, "pause", "r", "--reason", "lunch").stdout == "run r paused\n"
    assert "it is paused already" in str(call(home, "pause", "r", code=6).exception)
    assert call(home, "resume", "r").stdout == "run r resumed\n"
    assert call(home, "priority", "r", "7").stdout == "run r has priority 7\n"
    assert json.loads(call(home, "queue", "--json").stdout)[0]["priority"] == 7
    assert "nothing of it has failed" in str(call(home, "retry", "r", code=6).exception)
    told = json.loads(call(home, "cancel", "r", "--reason", "enough", "--json").stdout)
    assert told == {"run": "r", "before": "submitted", "asked": "cancelled"}
    assert "run r cancelled" in call(home, "watch", "r", code=1).stdout
    events = call(home, "events", "r").stdout
    assert "cancelled              enough" in events
    assert "is not known" in str(call(home, "pause", "x", code=5).exception)


def test_python_asks_by_the_words_of_the_commands(tmp_path: Path, monkeypatch) -> None:
    """`agent_forge.ask`: what it asks stands in the log; a word that does not exist is refused."""
    monkeypatch.setenv(FURTHER, KNOWN)
    home = Home(tmp_path / "home")
    toy_runs.submit(home, "r")
    ask("r", "pause", reason="lunch", home=home)
    ask("r", "priority", 7, home=home)
    ask("r", "rename", "first-try", home=home)
    ask("first-try", "cancel", home=home)
    with closing(home.open_store()) as store:
        state = repository.load(store, "r")
        assert queries.name(store, "r") == "first-try"
    assert (state.status, state.priority) == ("cancelled", 7)
    with pytest.raises(ConfigError, match="there is pause, resume, cancel, retry"):
        ask("r", "stop", home=home)
    for word, value in (("priority", None), ("priority", "high"), ("pause", 5), ("rename", 7)):
        with pytest.raises(ConfigError, match=f"^{word} takes .*, not {value!r}."):
            ask("r", word, value, home=home)
    with pytest.raises(NotFoundError, match="no 'override'"):
        ask("r", "override", "first", "noise", home=home)


def test_command_route_and_tool_are_made_from_one_table() -> None:
    paths = {route.path for route in router.routes if isinstance(route, APIRoute)}
    for word, asked in TABLE.items():
        assert COMMANDS[word] == ("agent_forge.cli.runs.control", asked.line)
        assert f"/runs/{{run}}/{word}" in paths
        assert BY_NAME[asked.tool_name].line == asked.line


@pytest.mark.slow
def test_submitting_twice_with_one_key_starts_one_run(toys: Toys, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    words = [*toys.words, "--key", "nightly", "--priority", "3", "--json"]
    first = json.loads(call(home, "submit", *words).stdout)["run"]
    again = json.loads(call(home, "evo", "--detach", *words).stdout)["run"]
    assert first == again
    assert len(json.loads(call(home, "runs", "--json").stdout)) == 1
    result = call(home, "submit", *words, "--gens", "3", code=6)
    assert "with other settings" in str(result.exception)
    other = json.loads(call(home, "submit", *toys.words, "--json").stdout)["run"]
    assert other != first
    rows = json.loads(call(home, "queue", "--json").stdout)
    assert [row["priority"] for row in rows] == [3, 0]


@pytest.mark.slow
def test_a_process_obeys_pause_resume_and_cancel_from_elsewhere(
    tmp_path: Path, warm: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paused one appends nothing and goes on by itself, as it would have; toy runs in processes.

    Each waits in its first task until the command is recorded.
    """
    monkeypatch.setenv(FURTHER, KNOWN)
    home, whole = Home(tmp_path / "home"), Home(tmp_path / "whole")
    settings = {"steps": 4, "width": 5}
    for place in (home, whole):
        toy_runs.submit(place, **settings)
    hold = tmp_path / "hold"
    held = f"hold:{hold}:toy-counted"
    with closing(home.open_store()) as store:
        hold.touch()
        process = warm.start(home, failpoints=held)
        wait_until(lambda: toy_runs.state(home).started, "it has begun")
        control(store, "r", events.Paused())
        hold.unlink()
        wait_until(lambda: _still(lambda: len(toy_runs.rows(home))), "it rests")
        state = toy_runs.state(home)
        assert (state.status, len(state.answers)) == ("paused", 1), "the task under way is recorded"
        control(store, "r", events.Resumed())
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
        assert out.strip() == toy_runs.finish(whole).lineage_digest()
        toy_runs.submit(home, "c", **settings)
        hold.touch()
        process = warm.start(home, "c", failpoints=held)
        wait_until(lambda: toy_runs.state(home, "c").started, "it has begun")
        control(store, "c", events.Cancelled(reason="enough"))
        hold.unlink()
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert RunCancelledError.__name__ in err
    assert audit.audit(toy_runs.rows(home, "c")) == []


@pytest.mark.slow
@pytest.mark.soak
def test_a_process_that_merges_obeys_pause_resume_and_cancel_from_elsewhere(
    toys: Toys, tmp_path
) -> None:
    """Real processes, real merges: the paused one appends nothing, and goes on by itself."""
    home, hold = Home(tmp_path), tmp_path / "hold"
    held = f"hold:{hold}:evaluate-scored"
    runs.submit(home, toys)
    hold.touch()
    process = runs.process(home, failpoints=held)
    store = home.open_store()
    wait_until(lambda: repository.load(store, "r").started, "it has begun")
    control(store, "r", run_events.Paused())
    hold.unlink()
    wait_until(lambda: _still(lambda: store.version(stream("evomerge", "r"))), "it rests")
    control(store, "r", run_events.Resumed())
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    whole = Home(tmp_path / "whole")
    runs.submit(whole, toys)
    assert out.strip() == runs.finish(whole).lineage_digest()
    runs.submit(home, toys, run="c")
    hold.touch()
    process = runs.process(home, "c", held)
    wait_until(lambda: repository.load(store, "c").started, "it has begun")
    control(store, "c", run_events.Cancelled(reason="enough"))
    hold.unlink()
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert RunCancelledError.__name__ in err
    assert audit.audit(list(repository.history(store, "c"))) == []
    store.close()


def _still(places: Callable[[], int]) -> bool:
    """Return True if a paused run's log rests for a while: at most a task under way is recorded."""
    before = places()
    time.sleep(1.5)
    return places() == before
