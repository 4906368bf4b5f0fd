"""The source documents' own examples, sent as they stand: paths, bodies, messages, both spellings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from agent_forge.api.app import create
from agent_forge.api.options import LOOPBACK, Options
from agent_forge.api.schemas.bodies import CreatedModel
from agent_forge.runs import kinds
from agent_forge.runs.home import Home
from agent_forge.runs.streams import stream
from agent_forge.worker.commands import accounts
from agent_forge.worker.queue.leases import myself
from agent_forge.worker.queue.scheduler import Offer
from testing.models.toys import Toys
from tests.integration.api.conftest import Served


@pytest.fixture(scope="module")
def real(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, str]]:
    """A server that may read the toy models, and a submitter's token."""
    home = Home(tmp_path_factory.mktemp("documents") / "home")
    store = home.open_store()
    accounts.add(store, "ada", "submitter")
    token = accounts.issue(store, "ada")[1]
    store.close()
    roots, hosts = (toys.base.parent, toys.data.parent), (*LOOPBACK, "testserver")
    options = Options(roots, rate=1e5, burst=100_000, hosts=hosts)
    with TestClient(create(home, options)) as client:
        client.headers["Authorization"] = f"Bearer {token}"
        yield client, token


def config(toys: Toys) -> dict[str, Any]:
    """A phase's `config` with everything in it, as the documents have it."""
    return {
        "models": [source.name for source in toys.sources],
        "base": toys.base.name,
        "data": [str(toys.data)],
        "generations": 1,
        "search_windows": 2,
    }


@pytest.mark.slow
def test_the_rest_endpoints_of_the_specification(real: tuple[TestClient, str], toys: Toys) -> None:
    """POST /phases/start, GET /phases/status, POST /models/create, GET /models/list."""
    client, _ = real
    empty = client.get("/phases/status").json()
    assert (empty["phase"], empty["progress"]) == ("evomerge", 0.0)

    body = {"phase_name": "evomerge", "config": config(toys)}
    started = client.post("/phases/start", json=body)
    assert started.status_code == 201
    told = started.json()
    assert (told["task_id"], told["status"]) == (told["run"], "submitted")
    submitted = client.get(f"/runs/{told['run']}").json()["config"]
    assert (submitted["generations"], submitted["search_windows"]) == (1, 2)

    status = client.get("/phases/status").json()
    assert {k: type(status[k]) for k in ("phase", "progress", "message", "percent")} == {
        "phase": str,
        "progress": float,
        "message": str,
        "percent": float,
    }
    assert status["task_id"] == told["task_id"]
    assert status["message"] == "waiting for a worker (none is connected)"
    assert status["phases"]["evomerge"]["total_generations"] == 1

    given = {"type": "specialist", "params": {"path": toys.sources[0].name, "name": "one"}}
    created = client.post("/models/create", json=given)
    assert created.status_code == 201
    made = created.json()
    assert made["model_id"] == made["id"]
    assert made["metadata"]["kind"] == "specialist"
    [listed] = [m for m in client.get("/models/list").json() if m["id"] == made["model_id"]]
    assert {k: type(listed[k]) for k in ("id", "name", "size", "metrics")} == {
        "id": str,
        "name": str,
        "size": int,
        "metrics": dict,
    }


def test_a_type_beside_empty_params_is_the_kind() -> None:
    """It was dropped: the base became a specialist."""
    for params in ({}, {"params": None}, {"params": {}}):
        made = CreatedModel.model_validate({"type": "base", "path": "models/base", **params})
        assert (made.kind, made.path) == ("base", "models/base")


@pytest.mark.slow
def test_both_spellings_start_the_same(real: tuple[TestClient, str], toys: Toys) -> None:
    client, _ = real
    flat = config(toys)
    ours = {k: flat.pop(k) for k in ("models", "base", "data")} | {"config": flat}
    runs = []
    for body in (
        {"phase_name": "evomerge", "config": config(toys)},
        {"phase": "evomerge", **ours},
        ours,
    ):
        answer = client.post("/phases/start", json=body)
        assert answer.status_code == 201, answer.text
        runs.append(client.get(f"/runs/{answer.json()['run']}").json())
    for key in ("config", "sources", "base"):
        assert runs[0][key] == runs[1][key] == runs[2][key]


@pytest.mark.parametrize("phase", ["poetry", "quiet-star"])
def test_a_phase_that_cannot_be_started_is_refused_with_what_there_is(
    served: Served, phase: str
) -> None:
    answer = served.ask("POST", "/phases/start", json={"phase_name": phase, "config": {}})
    assert answer.status_code == 422
    assert (
        f"phase '{phase}' cannot be started here: use {' or '.join(sorted(kinds.KINDS))}."
        in answer.json()["detail"]
    )
    kind = served.ask("POST", "/models/create", json={"type": phase, "params": {"path": "x"}})
    assert kind.status_code == 422
    assert "specialist" in kind.json()["detail"]


def test_the_websocket_messages_of_the_specification(real: tuple[TestClient, str], toys: Toys) -> None:
    """Subscribe to phase_updates, start_phase; error with phase and message."""
    client, token = real
    with client.websocket_connect("/ws", headers={"Authorization": f"Bearer {token}"}) as socket:
        assert socket.receive_json()["type"] == "welcome"
        socket.send_json({"type": "subscribe", "channel": "phase_updates"})
        assert socket.receive_json() | {"after": 0} == {"type": "subscribed", "run": None, "after": 0}
        socket.send_json({"type": "start_phase", "phase": "poetry", "config": {}})
        error = socket.receive_json()
        assert (error["type"], error["phase"]) == ("error", "poetry")
        assert (
            error["message"]
            == f"phase 'poetry' cannot be started here: use {' or '.join(sorted(kinds.KINDS))}."
        )
        socket.send_json({"type": "start_phase", "phase": "evomerge", "config": config(toys)})
        told: dict[str, Any] = {}
        while told.get("type") != "started":
            told = socket.receive_json()
        assert (told["task_id"], told["status"]) == (told["run"], "submitted")
        socket.send_json({"type": "subscribe", "channel": "weather"})
        while told.get("type") != "error":
            told = socket.receive_json()
        assert "phase_updates" in told["message"]
        assert "pydantic" not in told["message"]


def test_progress_and_complete_carry_the_documents_fields(served: Served) -> None:
    """000: total_generations, progress 0–1, best_fitness, diversity; 003: percent, results."""
    from agent_forge.api.live import Hub
    from agent_forge.api.state.run_cache import RunReader
    from testing.worlds.fake_world import RUN

    desk = RunReader(served.home)
    hub, found = Hub(desk), []
    import json

    for row in desk.store.iterate(stream("evomerge", RUN)):
        told = hub.tell(row)
        found += [json.loads(text) for text in told.texts] if told else []
    desk.close()
    progress = [m for m in found if m["type"] == "progress"]
    assert [m["progress"] for m in progress] == [0.0, 0.5, 1.0]
    assert [m["percent"] for m in progress] == [0.0, 50.0, 100.0]
    for message in progress:
        assert message["phase"] == "evomerge"
        assert message["total_generations"] == message["generations"] == 2
        assert isinstance(message["best_fitness"], float)
        assert isinstance(message["diversity"], float)
    [complete] = [m for m in found if m["type"] == "complete"]
    assert complete["phase"] == "evomerge"
    assert complete["results"]["best_fitness"] == progress[-1]["best_fitness"]


@pytest.mark.slow
def test_a_check_warns_of_a_label_that_no_worker_has(real: tuple[TestClient, str], toys: Toys) -> None:
    """Such a run waits for ever, beside living workers."""
    client, _ = real
    flat = config(toys)
    body = {k: flat.pop(k) for k in ("models", "base", "data")} | {"config": flat}
    roster, owner = client.app.state.desk.roster, myself("cpu0")  # pyright: ignore
    name = roster.enter("here/cpu0", owner, "cpu")
    roster.offers(name, owner, Offer(frozenset({"device:cpu", "big"}), 1, None, False))
    roster.say(name, owner, "idle")

    def warned(*labels: str) -> list[str]:
        answer = client.post("/runs/check", json={**body, "labels": labels})
        assert answer.status_code == 200, answer.text
        return [w for w in answer.json()["warnings"] if "wait" in w]

    assert warned("big") == []
    told = "The run would wait for a worker with the label demo (none is connected)."
    assert warned("big", "demo") == [f"{told} What helps: `forge worker --queues big,demo`."]
    roster.leave(name, owner)
    told = "The run would wait for a worker (none is connected)."
    assert warned() == [f"{told} What helps: `forge worker`."]


@pytest.mark.slow
def test_settings_nested_flat_and_of_the_documents_are_the_same_run(
    real: tuple[TestClient, str], toys: Toys
) -> None:
    """A body may have them as a file of `forge evo --config` has them."""
    client, _ = real
    given = config(toys)
    body = {k: given[k] for k in ("models", "base", "data")}
    bodies = (
        {"generations": 3, "search": {"strategy": "tournament", "elite_size": 1}, "budget": "1h"},
        {"generations": 3, "strategy": "tournament", "elite_size": 1, "budget_hours": 1},
        {"max_generations": 3, "strategy": "tournament", "search": {"elite_count": 1}, "budget": "60m"},
    )
    told = []
    for settings in bodies:
        answer = client.post("/runs/check", json={**body, "config": settings})
        assert answer.status_code == 200, answer.text
        told.append(answer.json()["config"])
    assert told == [told[0]] * 3
    assert (told[0]["elite_size"], told[0]["budget_hours"]) == (1, 1.0)
