"""What the API tells the dashboard: a live run's head, scores, words, the past; shapes of answers."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from agent_forge.api.schemas import bodies as api_schemas
from agent_forge.events import Event, New
from agent_forge.evomerge.run import events as run_events
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views import outlook, wording
from agent_forge.runs.kinds import wording as common
from agent_forge.runs.panels.side_by_side import SideBySide
from agent_forge.runs.record import events
from agent_forge.runs.streams import stream
from agent_forge.worker import append
from agent_forge.worker.commands import submit
from agent_forge.worker.queue.device_table import Device, DeviceTable
from agent_forge.worker.queue.leases import myself
from agent_forge.worker.queue.reporting import activity
from agent_forge.worker.queue.scheduler import Offer
from testing.waiting import wait_until
from testing.worlds import fake_runs
from testing.worlds.fake_world import RUN, World, small
from tests.integration.api.conftest import Served

HASH = re.compile(r"[0-9a-f]{40}")


def halfway(served: Served, stop: Any) -> str:
    """A run under way, up to `stop`."""
    store = served.home.open_store()
    fake_runs.submit(store, "way", population_size=8, elite_size=2, generations=3)
    fake_runs.finish(store, "way", stop)
    append.project(store)
    store.close()
    return "way"


def head_of(served: Served, run: str) -> dict[str, Any]:
    """The head, once the tasks are counted."""

    def counted() -> dict[str, Any] | None:
        told = served.get(f"/runs/{run}/head").json()
        return None if told["of"] is None else told

    return wait_until(counted, "the tasks are counted") or {}


@pytest.mark.slow
def test_a_run_whose_search_has_ended_has_no_reason_for_a_failure(served: Served) -> None:
    """`reason` is shown as what went wrong; the test phase of a healthy run is no failure."""
    run = halfway(served, lambda state: state.converged is not None)
    told = served.get(f"/runs/{run}").json()
    assert (told["status"], told["reason"]) == ("running", None)
    assert told["search_ended"] == "all generations are done"
    assert served.get(f"/runs/{RUN}").json()["reason"] is None


@pytest.mark.slow
def test_a_head_says_what_is_done_how_much_and_how_long(served: Served) -> None:
    """By the table of devices and the rehearsal; in words, without digests."""
    run = halfway(served, lambda state: state.generation == 2)
    task = served.get(f"/runs/{run}").json()["pending"][0]
    store = served.home.open_store()
    roster, owner = DeviceTable(store.database), myself("cpu0")
    roster.enter("host/cpu0", owner, "cpu")
    roster.say("host/cpu0", owner, "busy", run=run, task=task)
    told = head_of(served, run)
    store.close()
    assert told["doing"] == wording.task(task)
    assert [one["who"] for one in told["at_work"]] == ["host/cpu0"]
    assert told["waits_for"] is None
    assert 0 < told["done"] < told["of"]
    assert 0 < told["inside"] < 1
    assert told["eta_s"] > 0
    assert told["elapsed_s"] >= 0
    assert not HASH.search(str(told))
    api_schemas.Activity.model_validate(told)


def test_a_head_without_a_worker_says_what_it_waits_for(served: Served) -> None:
    run = halfway(served, lambda state: state.generation == 1)
    told = served.get(f"/runs/{run}/head").json()
    assert (told["doing"], told["waits_for"]) == (None, "a worker (none is connected)")
    ended = served.get(f"/runs/{RUN}/head").json()
    assert (ended["doing"], ended["waits_for"], ended["inside"]) == (None, None, 1.0)


def test_the_share_done_never_goes_back_and_ends_at_one() -> None:
    """The rehearsal counts the same tasks that the run then does."""
    world = World(small(population_size=8, elite_size=2, generations=3))
    world.run_until(lambda state: state.started is not None)
    tally = outlook.rehearsed(world.state)
    assert tally
    shares, counts = [], []
    while not world.state.ended:
        seen = outlook.outlook(world.state, tally)
        assert seen.of is not None
        assert seen.done <= seen.of
        counts.append(seen.done / seen.of)
        shares.append(seen.inside)
        world.step()
    last = outlook.outlook(world.state, tally)
    assert counts == sorted(counts)
    assert (last.inside, last.done) == (1.0, last.of)
    assert shares[-1] > 0.9


def test_a_run_that_is_too_large_to_be_rehearsed_goes_by_its_generations() -> None:
    world = World(small(generations=10_000))
    world.run_until(lambda state: state.generation == 1)
    assert not outlook.rehearsable(world.state)
    seen = outlook.outlook(world.state, None)
    assert (seen.of, seen.eta_s) == (None, None)
    assert seen.inside == pytest.approx(1 / 10_001)


def test_the_headline_is_the_test_score_with_its_interval_once_there_is_one(served: Served) -> None:
    """The champion was chosen by its score on selection, which flatters."""
    done = served.get(f"/runs/{RUN}").json()
    told = done["headline"]
    assert (told["slice"], told["score"]) == ("test", done["test"]["score"])
    best = max((r for r in done["rivals"] if r["kind"] != "baseline"), key=lambda r: r["score"])
    assert [told[k] for k in ("over", "low", "lead", "high")] == [
        best[k] for k in ("name", "low", "lead", "high")
    ]
    assert told["items"] == done["items"]["test"] == 20
    live = served.get("/runs/half").json()["headline"]
    assert (live["slice"], live["low"]) == ("selection", None)


def test_skills_compare_the_champion_with_sources_base_and_fixed_merges(served: Served) -> None:
    told = served.get(f"/runs/{RUN}").json()["skills"]
    assert told["slice"] == "test"
    text = "bits per byte"
    assert [(row["domain"], row["metric"], row["of"]) for row in told["rows"]] == [
        ("code", text, 6),
        ("code", "questions right", 4),
        ("code", "problems solved", 5),
        ("math", text, 5),
    ]
    fixed = {"mean", *(f"task-arithmetic-{scale}" for scale in (0.3, 0.5, 1))}
    for row in told["rows"]:
        assert row["better"] == ("down" if row["metric"] == text else "up")
        assert set(row["others"]) == {"a", "b", "c", "base", *fixed}


def test_the_past_is_wholly_past(served: Served) -> None:
    """Its newest event is the one of that place, and nothing but a fork can be asked of it."""
    events = served.get(f"/runs/{RUN}/events", params={"limit": 1000}).json()["events"]
    told = served.get(f"/runs/{RUN}", params={"at": 5}).json()
    assert told["updated_at"] == events[4]["recorded_at"]
    assert told["allowed"] == ["fork"]
    assert (told["place"], told["places"]) == (5, len(events))


def test_a_fork_says_at_which_place_it_was_branched(served: Served) -> None:
    run = served.forks["admin"]
    told = served.get(f"/runs/{run}").json()
    place = told["forked_from"]["place"]
    before = served.get(f"/runs/{told['forked_from']['run']}/events").json()["events"]
    own = served.get(f"/runs/{run}/events").json()["events"]
    assert own[place]["type"] == "forked"
    assert own[place - 1]["hash"] == before[place - 1]["hash"]


def test_no_word_for_people_holds_a_digest(served: Served) -> None:
    """Tasks' keys hold ids of 64 digits; pages and events say which candidate is meant."""
    for run in (RUN, "half"):
        told = served.get(f"/runs/{run}").json()
        assert set(told["words"]) >= set(told["pending"])
        assert not HASH.search(" ".join(told["words"].values()))
        for event in served.get(f"/runs/{run}/events").json()["events"]:
            assert event["gist"], event["type"]
            assert not HASH.search(event["gist"])
    gists = [e["gist"] for e in served.get(f"/runs/{RUN}/events").json()["events"]]
    assert any(
        re.fullmatch(r"b on selection: \d\.\d{4}|b on selection: perplexity [\d.]+", g) for g in gists
    )
    assert any(
        re.fullmatch(r"generation 1: best on its draw \d\.\d{4}, mean \d\.\d{4}", g) for g in gists
    )


def test_every_type_of_event_has_words_of_its_own() -> None:
    """An event without them would be told by whatever fields it happens to have."""
    assert set(run_events.REGISTRY.types()) == set(wording._GISTS) | set(common._GISTS)


def test_a_failed_task_is_told_on_one_line() -> None:
    data = {"task": f"evaluate/search/2/{'a' * 64}", "attempt": 2, "error": "ValueError:\n  no"}
    told = common.summary_line("evomerge", "task_failed", data, {"a" * 64: "candidate 2/1"})
    assert told == "measuring candidate 2/1 on search (attempt 2): ValueError: no"


def device(*labels: str) -> Device:
    """A living device with these labels."""
    offer = Offer(frozenset({"device:cpu", *labels}), 1, None, False)
    return Device("d", "o", "cpu", "idle", offer, None, None, 0, None, {}, 0.0, True, 0.0)


@pytest.mark.parametrize(
    ("labels", "devices", "told"),
    [
        ("demo", [device()], "a worker with the label demo (none is connected)"),
        ("b a", [device()], "a worker with the labels a and b (none is connected)"),
        ("demo", [], "a worker (none is connected)"),
        ("demo", [device("demo")], ""),
        (
            "a b",
            [device("a"), device("b")],
            "one worker with all of a cpu and the labels a and b (none is connected)",
        ),
    ],
)
def test_a_label_that_no_worker_has_is_named(labels: str, devices: list[Device], told: str) -> None:
    """Labels look like tags and are constraints: such a run waits for ever."""
    row = {"run": "r", "paused": None, "device": "cpu", "labels": labels, "profile": None}
    assert activity.reason(row, devices) == told


def test_a_key_that_begins_with_a_day_names_the_run_after_it() -> None:
    """Runs from the form kept no date. The same key is the same run, on whatever day it comes again."""
    assert re.fullmatch(r"20261123-[0-9a-f]{12}", submit.keyed_name("20261123-abc", "ada"))
    assert submit.keyed_name("nightly", "ada").startswith("key-")
    assert submit.keyed_name("20261123-a", "ada") != submit.keyed_name("20261123-a", "bob")


def test_answers_are_what_the_document_says(served: Served) -> None:
    """Routes answer with ready JSON: nothing else compares it with the schemas."""
    runs = served.get("/runs").json()
    api_schemas.Rows.model_validate(runs)
    for row in runs["runs"]:
        run = row["run"]
        whole = served.get(f"/runs/{run}").json()
        api_schemas.Run.model_validate(whole)
        for at in range(1, whole["places"], 7):
            past = served.get(f"/runs/{run}", params={"at": at})
            if past.status_code == 200:
                api_schemas.Run.model_validate(past.json())
        api_schemas.Events.model_validate(served.get(f"/runs/{run}/events").json())
        everything = served.get(f"/runs/{run}/population", params={"generation": "all"}).json()
        api_schemas.Population.model_validate(everything)
        if whole["champion"]:
            api_schemas.Candidate.model_validate(served.get(f"/runs/{run}/candidates/champion").json())
            api_schemas.Lineage.model_validate(served.get(f"/runs/{run}/lineage").json())
    SideBySide.model_validate(served.get("/compare", params={"runs": f"{RUN},half"}).json())
    api_schemas.Queue.model_validate(served.get("/queue").json())
    api_schemas.Settings.model_validate(served.get("/settings").json())
    api_schemas.Users.model_validate(served.get("/users").json())
    api_schemas.ModelList.model_validate(served.get("/models").json())
    api_schemas.Phases.model_validate(served.get("/phases/status").json())
    wrong = served.get("/runs", params={"limit": 0})
    api_schemas.Problem.model_validate(wrong.json())


@pytest.mark.slow
def test_a_front_has_values_that_people_know_and_what_it_dominates(served: Served) -> None:
    """The searched objective is −ln perplexity; nobody reads that as a perplexity."""
    store = served.home.open_store()
    wanted = {"strategy": "nsga2", "objectives": ["perplexity", "accuracy"]}
    fake_runs.submit(store, "front", **wanted, population_size=8, generations=3)
    state: RunState = fake_runs.finish(store, "front", varied=True)
    append.project(store)
    store.close()
    front = served.get("/runs/front").json()["front"]
    assert front["axes"] == [
        {"name": "perplexity", "better": "down"},
        {"name": "accuracy", "better": "up"},
    ]
    assert len(front["candidates"]) > 1
    for row in (*front["candidates"], *front["dominated"]):
        measured = state.components((row["candidate"], "selection", None))
        assert measured
        assert row["values"] == pytest.approx([measured.perplexity, measured.accuracy])
    judged = {id_ for id_, slice_, _ in state.evaluations if slice_ == "selection"}
    named = {row["candidate"] for row in (*front["candidates"], *front["dominated"])}
    assert named == judged & {c.recipe_id for c in state.candidates.values()}


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        (run_events.Failed(reason="build/1/0 failed 3 times"), "build/1/0 failed 3 times"),
        (events.Cancelled(reason="too dear"), "too dear"),
    ],
)
def test_a_run_that_ends_without_a_result_is_told_as_an_error(
    served: Served, ended: Event, message: str
) -> None:
    """Clients of the source documents take `complete` for success; a failed attempt is neither."""
    from agent_forge.api.live import Hub
    from agent_forge.api.state.run_cache import RunReader

    desk = RunReader(served.home)
    store = desk.store
    name = f"ends-{ended.type}"
    fake_runs.submit(store, name)
    tried = run_events.TaskFailed(task="start", attempt=1, error="ValueError: x")
    at = stream("evomerge", name)
    for number, event in enumerate((tried, ended)):
        store.append(at, store.version(at), [New(event, f"{name}/{number}")])
    hub = Hub(desk)
    first, last = (hub.tell(row) for row in list(store.iterate(at))[-2:])
    desk.close()
    assert first
    assert [json.loads(text)["type"] for text in first.texts] == ["event"]
    assert last
    told, event = map(json.loads, last.texts)
    assert (told["type"], told["phase"], told["task_id"]) == ("error", "evomerge", name)
    assert (told["status"], event["type"]) == (ended.type, "event")
    assert message in told["message"]


def test_a_replay_works_out_a_runs_names_once(served: Served, monkeypatch) -> None:
    """All names of a run were made for each of its events: 2 ms of the server's time an event."""
    from agent_forge.api.live import Hub
    from agent_forge.api.state.run_cache import RunReader
    from agent_forge.evomerge.run.views import wording

    made: list[str] = []
    names = wording.names

    def counted(state: Any) -> dict[str, str]:
        made.append(state.submitted.run if state.submitted else "")
        return names(state)

    monkeypatch.setattr(wording, "names", counted)
    desk = RunReader(served.home)
    found, _ = Hub(desk)._read(0, "half")
    desk.close()
    assert len(found) > 10
    assert made == ["half"]
