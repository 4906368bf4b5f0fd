"""A run from the form to its champion's folder, over HTTP, with models and other processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from agent_forge.api.app import create
from agent_forge.api.options import Options
from agent_forge.runs.home import Home
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import accounts
from agent_forge.worker.tasks import runner
from testing.models.toys import Toys
from testing.waiting import wait_until
from testing.worlds.runs import SETTINGS

#: A reason as people write them.
WHY = "für Zoë:\r\n“best of three” ✓"


def settled(client: TestClient, path: str, head: dict[str, str], done: Any) -> dict[str, Any]:
    """What a GET says once it is done."""
    bodies: list[dict[str, Any]] = []

    def settles() -> bool:
        bodies[:] = [client.get(path, headers=head).json()]
        return done(bodies[0])

    wait_until(settles, lambda: f"{path} did not get there: {bodies}", pause=0.2)
    return bodies[0]


@pytest.mark.soak
@pytest.mark.slow
def test_a_run_from_the_form_to_the_folder(toys: Toys, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "home"))
    home = Home.default()
    store = home.open_store()
    accounts.add(store, "ada", "submitter")
    head = {"Authorization": f"Bearer {accounts.issue(store, 'ada')[1]}"}
    roots = (toys.base.parent, toys.data.parent)
    body = {
        "models": [s.name for s in toys.sources],
        "base": str(toys.base),
        "data": [toys.data.name],
        "config": {**SETTINGS, "generations": 1},
    }
    with TestClient(create(home, Options(roots)), "http://127.0.0.1") as client:
        checked = client.post("/runs/check", json=body, headers=head)
        assert checked.status_code == 200, checked.text
        assert checked.json()["parameters"] == open_checkpoint(toys.base).parameters
        bad = client.post("/runs/check", json={**body, "models": ["/etc", "none"]}, headers=head)
        assert (bad.status_code, "may read" in bad.json()["detail"]) == (422, True)
        odd = {**body, "config": {"generations": "many", "nonsense": 1}}
        fields = {e["field"] for e in client.post("/runs", json=odd, headers=head).json()["errors"]}
        assert fields == {"config.generations", "config.nonsense"}

        key = {**head, "Idempotency-Key": "once"}
        first = client.post("/runs", json=body, headers=key)
        again = client.post("/runs", json=body, headers=key)
        run = first.json()["run"]
        assert (first.status_code, again.status_code, again.json()["run"]) == (201, 200, run)
        assert client.post("/runs", json={**body, "priority": 3}, headers=key).status_code == 409
        assert [row["run"] for row in client.get("/queue", headers=head).json()["runs"]] == [run]

        runner.finish(runner.WorkerProcess(store, Artifacts.of(home)), run)
        told = client.get(f"/runs/{run}", headers=head).json()
        assert (told["status"], told["owner"]) == ("completed", "ada")

        layers = settled(client, f"/runs/{run}/layers", head, lambda b: b["status"] == "ready")
        assert layers["sources"] == [s.name for s in toys.sources]
        assert all(0 <= row["explained"] <= 1 for row in layers["rows"] if row["explained"] is not None)

        assert client.post(f"/runs/{run}/export", json={"reason": WHY}, headers=head).status_code == 202
        done = settled(client, f"/runs/{run}/export", head, lambda b: b["status"] != "running")
        assert done["status"] == "done", done
        assert (Path(done["folder"]) / "report.md").is_file()
        assert open_checkpoint(Path(done["folder"])).parameters == told["parameters"]
        last = client.get(f"/runs/{run}/events?before=9999&limit=1", headers=head).json()["events"][0]
        told = "für Zoë: “best of three” ✓"  # several lines become one
        assert (last["type"], last["actor"], last["data"]["reason"]) == ("exported", "ada", told)

        champions = client.get("/models", params={"kind": "champion"}, headers=head).json()["models"]
        assert [m["run"] for m in champions] == [run]
        model = client.post("/models", json={"path": toys.base.name, "kind": "base"}, headers=head)
        assert model.status_code == 201
        assert client.get(f"/models/{model.json()['id']}", headers=head).json()["kind"] == "base"
        outside = client.post("/models", json={"path": str(tmp_path)}, headers=head)
        assert outside.status_code == 422
    store.close()
