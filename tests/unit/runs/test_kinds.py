"""What every kind of run shares, by the toy kind: `State`, `decide`, retries, commands, the table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, NotFoundError, UnknownKindError
from agent_forge.runs.history.audit import audit
from agent_forge.runs.history.repository import fold
from agent_forge.runs.kinds import controls, wording
from agent_forge.runs.kinds.decide import NextWork, decide, due, open_tasks, pending
from agent_forge.runs.kinds.files import Verification
from agent_forge.runs.kinds.kind import Kind
from agent_forge.runs.kinds.state import evolve
from agent_forge.runs.kinds.view import Outlook, changed
from agent_forge.runs.record import events
from testing.toy.toy_kind import KNOWN, ToyContext
from testing.toy.toy_state import Counted, ToyState, digest_of
from testing.toy.toy_world import RUN, ToyWorld


@pytest.fixture(autouse=True, scope="module")
def toy_is_known() -> Iterator[None]:
    """Name the toy kind in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(kinds.FURTHER, KNOWN)
        yield


@pytest.fixture(scope="module")
def finished() -> ToyWorld:
    """A run of 2 steps of 3, carried to its end in the order of its tasks."""
    world = ToyWorld()
    world.run()
    return world


# ---- order, purity, folding ------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 3), st.integers(1, 5))
def test_the_order_of_answers_changes_no_decision_and_no_lineage(
    random: Any, steps: int, width: int
) -> None:
    """Workers finish as they like."""
    reference, other = (ToyWorld(steps=steps, width=width) for _ in range(2))
    while not reference.state.ended:
        wanted, found = decide(reference.state), decide(other.state)
        assert [new.key for new in found.facts] == [new.key for new in wanted.facts]
        assert {task.key for task in found.tasks} == {task.key for task in wanted.tasks}
        reference.step()
        other.step(lambda tasks: random.sample(list(tasks), len(tasks)))
        assert other.state.lineage_digest() == reference.state.lineage_digest()
    assert other.state.completed.digest == reference.state.completed.digest
    assert audit(other.rows) == []


#: What may happen to a run between two steps, beside answers.
TROUBLE = st.sampled_from(["fail", "die", "pause", "resume", "retry", "priority", "answer", "late"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TROUBLE, st.integers(0, 5)), max_size=25))
def test_failures_deaths_pauses_and_wishes_change_no_lineage(
    finished: ToyWorld, happened: list[tuple[str, int]]
) -> None:
    """As long as the run completes, it completes as the undisturbed one did; every log is honest."""
    world = ToyWorld()
    for number, (what, pick) in enumerate(happened):
        _happen(world, what, pick, number)
    if world.state.paused:
        world.note(events.Resumed(), "resumed", "last")
    while not world.state.ended:
        world.step()
    assert audit(world.rows) == []
    if world.state.completed:
        assert world.state.lineage_digest() == finished.state.lineage_digest()
        assert world.state.completed.digest == finished.state.completed.digest
    else:
        assert world.state.failed


def _happen(world: ToyWorld, what: str, pick: int, number: int) -> None:
    """Let one thing happen, if the run accepts it then."""
    state = world.state
    tasks = open_tasks(state)
    wishes = {
        "pause": events.Paused(),
        "resume": events.Resumed(),
        "retry": events.Retried(),
        "priority": events.PriorityChanged(priority=pick),
    }
    if what in wishes:
        if controls.refusal(state, wishes[what]) is None:
            world.note(wishes[what], wishes[what].type, str(number))
    elif what == "answer" and not state.ended and not state.paused:
        if facts := due(state).facts:
            world.append(facts)
        elif tasks:
            task = tasks[pick % len(tasks)]
            world.note(ToyContext(state).carry_out(task), task.key)
    elif tasks and what in ("fail", "die") and not state.completed:
        getattr(world, what)(tasks[pick % len(tasks)].key)
    elif tasks and what == "late":  # a result that comes although the run waits, or has failed
        task = tasks[pick % len(tasks)]
        world.note(ToyContext(state).carry_out(task), task.key)


def test_every_prefix_folds_to_the_state_that_was(finished: ToyWorld) -> None:
    """At once, event by event, and from any place on: one state."""
    for place in range(1, len(finished.rows) + 1):
        whole = fold(finished.rows[:place])
        again = fold(finished.rows[:1])
        for row in finished.rows[1:place]:
            again.absorb([row])
        assert whole == again
        assert whole.place == whole.version == place


def test_evolve_and_decide_change_no_state(finished: ToyWorld) -> None:
    """A decision that left a trace would depend on how often it was asked for."""
    state: Any = fold(finished.rows[:4])
    before = deepcopy(state)
    assert decide(state) == decide(state)
    assert pending(state) == [task.key for task in decide(state).tasks]
    event = Counted(step=0, slot=2, value=7, digest=digest_of(7), seconds=0.0)
    after = evolve(state, event, f"{RUN}/count/0/2")
    assert state == before
    assert after.answers["count/0/2"] == event


def test_an_event_of_another_kind_is_no_part_of_a_run() -> None:
    from agent_forge.evomerge.run.events import DiversityMeasured

    event = DiversityMeasured.model_construct()
    with pytest.raises(TypeError, match="diversity_measured is not an event of a toy run"):
        ToyState().take(event)


# ---- failures, deaths, quarantine ------------------------------------------------------------


def test_a_task_that_killed_three_processes_ends_the_run() -> None:
    world = ToyWorld()
    world.step()
    for _ in range(3):
        world.die("count/0/1")
    world.run()
    assert world.state.failed
    assert "count/0/1 is quarantined" in world.state.failed.reason
    assert audit(world.rows) == []


def test_with_worst_fitness_the_run_goes_on_without_the_task(finished: ToyWorld) -> None:
    """Its place counts nothing; a result that comes after all is accepted while the step is open."""
    world = ToyWorld("worst-fitness")
    world.step()
    for _ in range(3):
        world.die("count/0/1")
    world.step()
    assert list(world.state.quarantined) == ["count/0/1"]
    assert [task.key for task in decide(world.state).tasks] == ["count/0/0", "count/0/2"]
    late = deepcopy(world)
    world.run()
    assert world.state.completed
    assert "count/0/1" not in world.state.answers
    assert world.state.steps[0].total < finished.state.steps[0].total
    assert audit(world.rows) == []
    task = next(task for task in open_tasks(late.state) if task.key == "count/0/1")
    late.note(ToyContext(late.state).carry_out(task), task.key)
    late.run()
    assert late.state.lineage_digest() == finished.state.lineage_digest()
    assert audit(late.rows) == []


def test_a_start_that_is_quarantined_ends_every_run() -> None:
    world = ToyWorld("worst-fitness")
    for _ in range(3):
        world.die("start")
    world.run()
    assert world.state.failed
    assert audit(world.rows) == []


def test_a_retry_forgets_failures_deaths_and_quarantine(finished: ToyWorld) -> None:
    world = ToyWorld()
    world.step()
    for _ in range(3):
        world.die("count/0/1")
    while not world.state.failed:
        world.step()
    world.note(events.Retried(), "retried", "1")
    assert (world.state.status, world.state.quarantined) == ("running", {})
    assert world.run().lineage_digest() == finished.state.lineage_digest()
    assert audit(world.rows) == []


def test_a_paused_run_has_something_due_and_nothing_to_do() -> None:
    world = ToyWorld()
    world.step()
    world.note(events.Paused(), "paused", "1")
    assert decide(world.state) == NextWork()
    assert len(due(world.state).tasks) == len(open_tasks(world.state)) == 3
    assert pending(world.state) == []


def test_a_run_that_has_ended_accepts_only_what_makes_sense(finished: ToyWorld) -> None:
    state = finished.state
    assert controls.refusal(state, events.Paused()) == "it has completed"
    assert controls.refusal(state, events.Retried()) == "it has completed"
    exported = events.Exported(recipe_id="", folder="", digest="0" * 64)
    assert controls.refusal(state, exported) is None
    assert controls.refusal(ToyWorld().state, exported)


# ---- words, defaults, the table --------------------------------------------------------------


def test_every_event_has_a_gist_and_every_task_words(finished: ToyWorld) -> None:
    names = wording.names(finished.state)
    told = [wording.summary_line("toy", row.type, json.loads(row.data), names) for row in finished.rows]
    assert all(told)
    assert told[-1] == "total of step 1"
    assert wording.task("toy", "count/1/2") == "count slot 2 of step 1"
    assert wording.next_step("toy", "step_completed") == "step completed"
    assert wording.summary_line("toy", "paused", {"reason": "lunch"}) == "lunch"
    lacking = wording.summary_line("toy", "counted", {"step": 1})
    assert lacking == "", "another schema, which lacks a field"


def test_progress_outlook_message_and_snapshot_need_nothing_of_the_kind(finished: ToyWorld) -> None:
    """Their defaults go by units."""
    kind = kinds.of("toy")
    half = ToyWorld()
    while len(half.state.steps) < 1:
        half.step()
    for state, share in ((half.state, 0.5), (finished.state, 1.0)):
        assert kind.view.outlook(state, kind.view.rehearse(state)).inside == share
        assert kind.view.message(state)["progress"] == share
    assert kind.view.message(half.state, 0)["phase"] == "toy"
    told = kind.view.snapshot(half.state)
    assert (told["done"], told["of"]) == (1, 2)
    assert told["pending"] == ["count/1/0", "count/1/1", "count/1/2"]
    found = kind.view.difference(half.state, finished.state)
    assert found == {"settings": {}, "same_lineage": False}


def test_the_kinds_own_checks_of_weights_find_a_value_that_does_not_come_out_again(
    finished: ToyWorld,
) -> None:
    kind, state = kinds.of("toy"), deepcopy(finished.state)
    said: list[str] = []
    ids = kind.verification.chosen(state, "all")
    assert list(kind.verification.rebuild(state, None, ids, said.append)) == []
    assert len(said) == len(ids) == 6
    state.answers["count/1/0"] = state.answers["count/1/0"].model_copy(update={"value": 5})
    (found,) = kind.verification.rebuild(state, None, ids, said.append)
    assert "count/1/0 was 5, and is" in found.message
    assert list(kind.verification.rebuild(state, None, ["count/0/0"], said.append)) == []


def test_a_kind_that_says_nothing_about_results_has_none_to_verify(
    finished: ToyWorld, tmp_path: Path
) -> None:
    """The defaults, which a kind without models keeps."""
    kind, state = kinds.of("toy"), finished.state
    plain: Verification[ToyState] = Verification(kind)
    with pytest.raises(NotFoundError, match="is a toy run: nothing of it can be rebuilt"):
        plain.chosen(state, "all")
    assert list(plain.cached(state, None)) == []
    assert plain.document(tmp_path) is None
    with pytest.raises(ConfigError, match="it has no result to write"):
        Kind[ToyState].write_result(kind, None, state, tmp_path)  # type: ignore[arg-type]


def test_the_table_has_the_kinds_of_this_program_and_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert set(kinds.table()) == {*kinds.KINDS, "toy"}
    assert kinds.is_run("toy/r")
    assert not kinds.is_run("toys/r")
    assert not kinds.is_run("toy")
    monkeypatch.setenv(kinds.FURTHER, "")
    assert kinds.kind_of("toy/r") is None
    with pytest.raises(UnknownKindError, match="It knows: bake, baking, bitnet, cognate, compression"):
        kinds.of("toy")


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("no_such_module:Kind", "No module named 'no_such_module'"),
        ("testing.toy.toy_kind:NoSuchKind", "has no attribute 'NoSuchKind'"),
    ],
)
def test_a_kind_of_the_environment_that_cannot_be_loaded_is_named(
    place: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guide to a phase of your own has users set the variable."""
    monkeypatch.setenv(kinds.FURTHER, f"own={place}")
    with pytest.raises(UnknownKindError, match=f"FORGE_KINDS says that {place} .*{why}"):
        kinds.of("own")


@pytest.mark.parametrize("name", sorted(kinds.KINDS))
def test_settings_of_every_kind_are_listed_with_defaults(name: str) -> None:
    """The terminal, the API and a run that is asked for again read them: none may be required."""
    kind = kinds.of(name)
    assert kind.settings.schema()["defaults"]
    assert kind.settings.options("")


def test_settings_are_parsed_with_what_is_wrong_by_name() -> None:
    kind = kinds.of("toy")
    assert kind.settings.parse({"steps": 5}).steps == 5
    with pytest.raises(ConfigError, match=r"settings of a toy run: steps: .*; colour: "):
        kind.settings.parse({"steps": "many", "colour": "red"})
    assert set(kind.settings.schema()) == {"schema", "defaults"}


def test_a_completed_that_says_another_total_is_found(finished: ToyWorld) -> None:
    """By the kind's own check, beside those of every kind."""
    state = deepcopy(finished.state)
    state.completed = state.completed.model_copy(update={"total": 1})
    assert list(kinds.of("toy").wrong_result(state)) == ["the total is not that of the steps before"]


def test_settings_that_only_one_of_two_runs_has_differ() -> None:
    """Runs of two strategies have other settings; comparing them failed with a KeyError."""
    told = changed({"a": 1, "b": 2, "c": None}, {"b": 2, "a": 0, "d": 3})
    assert told == {"a": [1, 0], "d": [None, 3]}
    assert list(told) == ["a", "d"]


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (
            Outlook(70, 122, 0.339, 240.0, bound=True),
            "33 % of the time · 70 of at most 122 tasks · 4 min 00 s left at most",
        ),
        (Outlook(1228, 1403, 0.87, None, "steps"), "1,228 of 1,403 steps"),
        (
            Outlook(24, 30, 0.8, 92.0, "steps", besides=True),
            "24 of 30 steps · 1 min 32 s left at most beside measures that were not taken yet",
        ),
        (Outlook(3, None, 0.25, None), "25 % done · 3 tasks"),
        (Outlook(3, None, None, None), "3 tasks done"),
        (Outlook(9, 9, 1.0, 0.0), "99 % of the time · 9 of 9 tasks · 1.0 s left at most"),
    ],
)
def test_progress_is_one_text_and_its_share_says_of_what(seen: Outlook, words: str) -> None:
    """A share of time only where the time left is known; never all of it before the end."""
    assert seen.words() == words


def test_a_run_that_has_ended_or_waits_has_no_time_left() -> None:
    assert Outlook(9, 9, 1.0, 0.0).words(ended=True) == "9 of 9 tasks"
    assert Outlook(3, 9, 0.4, 8.0).words(ended=True) == "3 of 9 tasks"
