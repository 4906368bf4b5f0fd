"""The list of pipelines and what waits for a user: they say what the pages of the runs say."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select, update

from agent_forge.events import projection
from agent_forge.runs.errors import RunFailedError
from agent_forge.runs.home import Home
from agent_forge.runs.lists import stages
from agent_forge.runs.lists.projections import RUNS, Runs
from agent_forge.runs.lists.stages import ListFilters
from agent_forge.runs.record import events
from agent_forge.worker import append
from agent_forge.worker.commands import accounts
from agent_forge.worker.commands.control import control
from agent_forge.worker.commands.fork import fork, plan
from agent_forge.worker.queue.device_table import DeviceTable
from testing.services.servers import Postgres
from testing.toy import toy_pipelines, toy_runs
from testing.toy.toy_pipelines import TWO, phase
from tests.integration.kinds.test_api import served

STOPPING = {"metric": "total", "at_least": 1e12}


def put(home: Home, run: str, phases: list[dict[str, Any]], **queued: Any) -> None:
    """Submit a pipeline and carry it as far as it comes."""
    toy_pipelines.submit(home, phases, run, **queued)
    with suppress(RunFailedError):
        toy_runs.finish(home, run)


@pytest.fixture(scope="module")
def full_home(honest_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with pipelines in every state; `p` is the undisturbed one."""
    folder = tmp_path_factory.mktemp("listed") / "home"
    home = Home(Path(shutil.copytree(honest_home.folder, folder)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORGE_KINDS", "toy=testing.toy.toy_kind:Toy")
        put(home, "stopped", [phase("first", STOPPING, seed=1), TWO[1]], by="bob")
        put(home, "broken", [TWO[0], phase("second", failing="count/0/1"), phase("third")])
        for run in ("going", "paused"):
            toy_pipelines.submit(home, [*TWO, phase("third")], run, labels=("big",))
            child = f"{run}.2-second"
            toy_runs.carry_until(home, lambda s, child=child: s.run == child and len(s.steps) == 1, run)
        with closing(home.open_store()) as store:
            control(store, "paused", events.Paused())
            branch = plan(store, "p", None, 2, {"second.seed": 5})
            again = fork(store, branch, by="eve")
            control(store, again, events.PriorityChanged(priority=3))
            toy_runs.submit(home, "p.3-third")  # of nobody's pipeline
            append.project(store)
        put(home, "reusing", TWO, reuse=True)
    return home


@pytest.fixture
def client(full_home: Home, tmp_path: Path) -> Iterator[TestClient]:
    home = Home(Path(shutil.copytree(full_home.folder, tmp_path / "home")))
    with served(home, tmp_path / "models") as client:
        yield client


def pipelines(client: TestClient, **query: Any) -> list[dict[str, Any]]:
    answer = client.get("/pipelines", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["pipelines"]


def test_each_pipeline_stands_as_on_its_page(client: TestClient) -> None:
    """Its status, its phases, their runs, and the seconds of all of its runs."""
    rows = {row["run"]: row for row in pipelines(client)}
    states = {name: [s["state"] for s in row["stages"]] for name, row in rows.items()}
    (branch,) = set(rows) - {"p", "stopped", "broken", "going", "paused", "reusing"}
    assert states == {
        "p": ["ended", "ended"],
        "stopped": ["gate stopped", "waiting"],
        "broken": ["ended", "failed", "waiting"],
        "going": ["ended", "running", "waiting"],
        "paused": ["ended", "paused", "waiting"],
        "reusing": ["reused", "reused"],
        branch: ["ended", "waiting"],
    }
    every = client.get("/runs", params={"limit": 500}).json()["runs"]
    for name, row in rows.items():
        shown = client.get(f"/runs/{name}/panels").json()
        strip = next(one for one in shown["panels"] if one["name"] == "strip")["stages"]
        for stage, drawn in zip(row["stages"], strip, strict=True):
            assert stage["state"] == drawn["state"]
            assert (stage["number"], stage["name"]) == (drawn["number"], drawn["name"])
            assert stage["run"] == next(iter(drawn["runs"]), None), (name, stage)
        assert (row["done"], row["of"]) == (shown["head"]["done"], shown["head"]["of"])
        assert row["status"] == shown["head"]["status"]
        own = [r for r in every if r["run"] == name or r["run"].startswith(f"{name}.")]
        if name != "p":  # `p.3-third` is no run of it
            parts = [r["device_seconds"] for r in own if r["run"] != name]
            (whole,) = (r["device_seconds"] for r in own if r["run"] == name)
            assert row["spent"] == whole == pytest.approx(sum(parts))
    assert rows["stopped"]["stages"][0]["gate"] == "total"
    foreign = next(r for r in every if r["run"] == "p.3-third")
    assert foreign["kind"] == "toy"


def test_the_list_is_sorted_filtered_and_paged(client: TestClient) -> None:
    every = pipelines(client)
    names = [row["run"] for row in every]
    assert [row["run"] for row in pipelines(client, limit=2)] == names[:2]
    page = client.get("/pipelines", params={"limit": 2}).json()
    assert (page["total"], page["next"]) == (7, "2")
    rest = client.get("/pipelines", params={"limit": 200, "before": page["next"]}).json()
    assert [row["run"] for row in rest["pipelines"]] == names[2:]
    assert rest["next"] is None
    for sort in ("run", "status", "owner", "done", "spent", "updated_at"):
        for order, down in (("down", True), ("up", False)):
            told = [row[sort] for row in pipelines(client, sort=sort, order=order)]
            assert told == sorted(told, reverse=down), (sort, order)
    assert {row["run"] for row in pipelines(client, status="failed")} == {"stopped", "broken"}
    assert [row["run"] for row in pipelines(client, owner="bob")] == ["stopped"]
    assert {row["run"] for row in pipelines(client, q="big")} == {"going", "paused"}
    assert client.get("/pipelines", params={"sort": "kind"}).status_code == 422


def test_a_list_that_is_made_again_is_the_same(full_home: Home, tmp_path: Path) -> None:
    """It was made event by event; made from the whole log at once it has the same rows."""
    home = Home(Path(shutil.copytree(full_home.folder, tmp_path / "home")))
    with closing(home.open_store()) as store:
        rows = select(RUNS).order_by(RUNS.c.run)
        projection.catch_up(store, Runs())
        before = [tuple(row) for row in store.database.rows(rows)]
        projection.rebuild(store, Runs())
        assert [tuple(row) for row in store.database.rows(rows)] == before
        parts = {row.run: row.part_of for row in store.database.rows(rows)}
    assert parts["going.2-second"] == "going"
    assert parts["going"] is parts["p.3-third"] is None


def test_it_is_sorted_by_quality_and_size_and_what_is_not_measured_comes_last(
    client: TestClient, tmp_path: Path
) -> None:
    """Toy models are not measured, so the figures are put into the list by hand."""
    names = [row["run"] for row in pipelines(client)]
    with closing(Home(tmp_path / "home").open_store()) as store:
        with store.database.writing() as connection:
            for run, quality, size in (("p", 1.5, 300), ("going", 2.5, 100), ("broken", 0.5, 200)):
                values = {"quality": quality, "bytes": size}
                connection.execute(update(RUNS).where(RUNS.c.run == run).values(**values))
    rest = [name for name in names if name not in ("p", "going", "broken")]
    for sort, order, wanted in (
        ("quality", "down", ["going", "p", "broken"]),
        ("quality", "up", ["broken", "p", "going"]),
        ("bytes", "down", ["p", "broken", "going"]),
    ):
        told = pipelines(client, sort=sort, order=order)
        assert [row["run"] for row in told] == [*wanted, *rest]
    assert (told[0]["quality"], told[0]["bytes"]) == (1.5, 300)


def needs(client: TestClient, **headers: str) -> Any:
    answer = client.get("/needs", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_what_waits_for_a_user_is_told_by_name(client: TestClient) -> None:
    """The id stays: addresses have it."""
    for run in ("broken", "stopped"):
        answer = client.patch(f"/runs/{run}", json={"name": f"my-{run}"})
        assert answer.status_code == 200, answer.text
    names = {row["run"]: row["name"] for row in needs(client)["runs"]}
    assert names == {"broken": "my-broken", "stopped": "my-stopped"}


def test_what_waits_for_a_user_is_in_the_log_and_the_table_of_devices(
    client: TestClient, tmp_path: Path
) -> None:
    home = Home(tmp_path / "home")
    found = needs(client)
    assert [(one["run"], one["stopped"]) for one in found["runs"]] == [
        ("broken", None),
        ("stopped", {"name": "first", "gate": "total", "says": found["runs"][1]["stopped"]["says"]}),
    ]
    says = client.get("/runs/stopped").json()["decision"]
    assert says == {"about": "first", "says": found["runs"][1]["stopped"]["says"]}
    assert says["says"].startswith("Phase first has ended, and its gate holds the pipeline: total is")
    assert "phase second" in found["runs"][0]["reason"]
    assert (found["total"], found["workers"]) == (2, [])
    with closing(home.open_store()) as store:
        heads = {}
        for name, role in (("bob", "submitter"), ("eve", "submitter"), ("vic", "viewer")):
            accounts.add(store, name, role)
            heads[name] = {"Authorization": f"Bearer {accounts.issue(store, name)[1]}"}
        dead = "host:1:dead"
        roster = DeviceTable(store.database)
        roster.enter("cpu-1", dead, "cpu")
        roster.say("cpu-1", dead, "busy", run="going.2-second", beat=0.0)
    assert [one["run"] for one in needs(client, **heads["bob"])["runs"]] == ["stopped"]
    assert needs(client, **heads["eve"])["runs"] == []
    assert needs(client, **heads["vic"]) == {"runs": [], "total": 0, "workers": []}
    (gone,) = needs(client, **heads["eve"])["workers"]
    assert (gone["name"], gone["device"], gone["run"]) == ("cpu-1", "cpu", "going.2-second")
    body = {"phase": "first", "reason": "good enough"}
    assert client.post("/runs/stopped/override", json=body).status_code == 200
    assert client.post("/runs/broken/retry", json={}).status_code == 200
    assert needs(client)["runs"] == []
    (row,) = pipelines(client, q="stopped")
    assert [stage["state"] for stage in row["stages"]] == ["overridden", "waiting"]


def test_a_stopped_pipeline_needs_a_decision_and_may_be_given_up(client: TestClient) -> None:
    """No retry is offered, which would change nothing; what is given up needs nobody any more."""
    shown = client.get("/runs/stopped").json()
    assert shown["allowed"] == ["cancel", "fork"]
    assert client.get("/runs/broken").json()["decision"] is None
    undecided = {row["run"] for row in pipelines(client) if row["undecided"]}
    listed = client.get("/runs", params={"status": "failed", "limit": 500}).json()["runs"]
    assert undecided == {row["run"] for row in listed if row["undecided"]} == {"stopped"}
    beside = client.get("/compare", params={"runs": "stopped,broken"}).json()
    assert beside["undecided"] == ["stopped"]
    assert client.post("/runs/broken/cancel", json={"reason": "no use"}).status_code == 409
    assert client.post("/runs/stopped/cancel", json={"reason": "no use"}).status_code == 200
    after = client.get("/runs/stopped").json()
    assert (after["status"], after["reason"], after["decision"]) == ("cancelled", "no use", None)
    (row,) = pipelines(client, q="stopped")
    assert (row["status"], row["undecided"]) == ("cancelled", False)
    assert [one["run"] for one in needs(client)["runs"]] == ["broken"]
    assert client.post("/runs/stopped/retry", json={}).status_code == 409


@pytest.mark.slow
def test_on_postgresql_the_list_is_the_same(postgres: Postgres, tmp_path: Path) -> None:
    home = Home(tmp_path / "home", postgres.new_database())
    put(home, "stopped", [phase("first", STOPPING), TWO[1]])
    put(home, "p", TWO)
    with closing(home.open_store()) as store:
        for sort in (None, *stages.SORTS):
            rows, total = stages.page(store, 10, 0, ListFilters(sort=sort, text="p", descending=False))
            assert (total, {row["run"] for row in rows}) == (2, {"p", "stopped"}), sort
        rows, _ = stages.page(store, 10, 0, ListFilters(sort="spent", descending=False))
        states = {row["run"]: [s["state"] for s in row["stages"]] for row in rows}
        assert states == {"stopped": ["gate stopped", "waiting"], "p": ["ended", "ended"]}
        assert rows[0]["spent"] <= rows[1]["spent"] > 0
        ((needing,), total) = stages.needing(store, None, 5)
        stopped = needing["stopped"]
        assert (needing["run"], stopped["name"], stopped["gate"], total) == (
            "stopped",
            "first",
            "total",
            1,
        )
