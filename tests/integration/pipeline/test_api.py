"""Pipelines over the API: followed and controlled, and started at a terminal only."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from runs.errors import RunFailedError
from runs.home import Home
from testing.toy import toy_pipelines, toy_runs
from testing.toy.toy_pipelines import TWO
from tests.integration.kinds.test_api import served


@pytest.fixture
def client(honest_home: Home, tmp_path: Path) -> Iterator[TestClient]:
    """A server over the undisturbed pipeline `p`."""
    home = Home(Path(shutil.copytree(honest_home.folder, tmp_path / "home")))
    with served(home, tmp_path / "models") as client:
        yield client


def test_a_pipeline_is_shown_by_its_panels(client: TestClient) -> None:
    told: Any = client.get("/runs/p/panels").json()
    assert [panel["name"] for panel in told["panels"]] == ["phases", "gates"]
    assert told["head"]["done"] == told["head"]["of"] == 2
    assert {run["run"] for run in client.get("/runs").json()["runs"]} == {
        "p",
        "p.1-first",
        "p.2-second",
    }


@pytest.mark.parametrize("path", ["/runs", "/phases/pipeline/start", "/plans"])
def test_no_pipeline_is_started_over_the_api(client: TestClient, path: str) -> None:
    """Its settings name files, and a user of the API reads those below the roots only."""
    phase = {**TWO[0], "data": ["/etc/passwd"]}
    body = {"kind": "pipeline", "config": {"phases": [phase]}, "models": [], "data": []}
    answer = client.post(path, json=body)
    assert answer.status_code in (404, 422), answer.text
    if path == "/runs":
        assert "start it at a terminal" in answer.json()["detail"]


def test_a_fork_over_the_api_changes_no_phase(client: TestClient, tmp_path: Path) -> None:
    phases = [TWO[0], {**TWO[1], "data": ["/etc/passwd"]}]
    body = {"generation": 2, "settings": {"phases": phases}}
    refused = client.post("/runs/p/fork", json=body)
    assert refused.status_code == 422
    assert "start it at a terminal" in refused.json()["detail"]
    made = client.post("/runs/p/fork", json={"generation": 2})
    assert made.status_code == 201, made.text
    home = Home(tmp_path / "home")
    assert toy_runs.finish(home, made.json()["run"]).completed


def test_a_stopped_gate_is_overridden_with_a_reason(client: TestClient, tmp_path: Path) -> None:
    """The panel says what the action is about; the same key is recorded once."""
    home = Home(tmp_path / "home")
    stopping = {**TWO[0], "gates": [{"metric": "total", "at_least": 1e12}]}
    toy_pipelines.submit(home, [stopping, TWO[1]], "q")
    with pytest.raises(RunFailedError):
        toy_runs.finish(home, "q")
    [_, gates] = client.get("/runs/q/panels").json()["panels"]
    assert [(gate["verdict"], gate["about"]) for gate in gates["gates"]] == [("stop", "first")]
    path, body = "/runs/q/actions/override", {"about": "first", "reason": "good enough"}
    for wrong, status in (
        ({"about": "first"}, 422),
        ({**body, "about": "third"}, 404),
        ({**body, "about": "second"}, 409),
    ):
        refused = client.post(path, json=wrong)
        assert refused.status_code == status, refused.text
    assert client.post("/runs/q/actions/bless", json=body).status_code == 404
    assert client.post("/runs/q.1-first/actions/override", json=body).status_code == 404
    before = len(toy_runs.rows(home, "q"))
    for _ in range(2):
        done = client.post(path, json=body, headers={"Idempotency-Key": "once"})
        assert done.status_code == 200, done.text
    assert [row.type for row in toy_runs.rows(home, "q")[before:]] == ["gate_overridden", "retried"]
    assert toy_runs.finish(home, "q").completed
    [_, gates] = client.get("/runs/q/panels").json()["panels"]
    told = gates["gates"][0]
    assert (told["verdict"], told["reason"], told["about"]) == ("overridden", "good enough", None)
