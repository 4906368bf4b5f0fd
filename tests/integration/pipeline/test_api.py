"""Pipelines over the API: followed, controlled and forked."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from agent_forge.runs.errors import RunFailedError
from agent_forge.runs.home import Home
from testing.toy import toy_pipelines, toy_runs
from testing.toy.toy_pipelines import TWO
from tests.integration.kinds.test_api import served


@pytest.fixture
def client(honest_home: Home, tmp_path: Path) -> Iterator[TestClient]:
    """A server over the undisturbed pipeline `p`."""
    home = Home(Path(shutil.copytree(honest_home.folder, tmp_path / "home")))
    with served(home, tmp_path / "models") as client:
        yield client


def panel(client: TestClient, run: str, name: str, **moment: int) -> Any:
    """Return a panel of a run, now or at a moment of the past."""
    panels = client.get(f"/runs/{run}/panels", params=moment).json()["panels"]
    return next(one for one in panels if one["name"] == name)


def standing(client: TestClient, run: str = "p", **moment: int) -> list[tuple[str, float | None]]:
    """Return how each phase of a pipeline stands, and how far it is."""
    stages = panel(client, run, "strip", **moment)["stages"]
    return [(stage["state"], stage["inside"]) for stage in stages]


def test_a_pipeline_is_shown_by_its_panels(client: TestClient) -> None:
    told: Any = client.get("/runs/p/panels").json()
    names = ["strip", "gates", "timeline", "phases", "family"]
    assert [panel["name"] for panel in told["panels"]] == names
    assert told["panels"][-1]["nodes"][1]["lane"] == "2 second"
    assert told["head"]["done"] == told["head"]["of"] == 2
    assert {run["run"] for run in client.get("/runs").json()["runs"]} == {
        "p",
        "p.1-first",
        "p.2-second",
    }


def test_a_fork_over_the_api_changes_settings_and_names_no_files(
    client: TestClient, tmp_path: Path
) -> None:
    """Models and data stay those of the pipeline: `phases` and `test` may name any file."""
    phases = [TWO[0], {**TWO[1], "data": ["/etc/passwd"]}]
    for wrong in ({"phases": phases}, {"phase": phases}, {"test": ["/etc/passwd"]}):
        refused = client.post("/runs/p/fork", json={"generation": 2, "settings": wrong})
        assert refused.status_code == 422
        assert "names models and files, which stay" in refused.json()["detail"]
    for settings in ({}, {"second.seed": 7}):
        made = client.post("/runs/p/fork", json={"generation": 2, "settings": settings})
        assert made.status_code == 201, made.text
        home = Home(tmp_path / "home")
        assert toy_runs.finish(home, made.json()["run"]).completed
    assert toy_runs.state(home, f"{made.json()['run']}.2-second").submitted.config.seed == 7


def test_a_stopped_gate_is_overridden_with_a_reason(client: TestClient, tmp_path: Path) -> None:
    """The panel says what the action is about; the same key is recorded once."""
    home = Home(tmp_path / "home")
    stopping = {**TWO[0], "gates": [{"metric": "total", "at_least": 1e12}]}
    toy_pipelines.submit(home, [stopping, TWO[1]], "q")
    with pytest.raises(RunFailedError):
        toy_runs.finish(home, "q")
    gates = panel(client, "q", "gates")
    assert [(gate["verdict"], gate["about"]) for gate in gates["gates"]] == [("stop", "first")]
    path, body = "/runs/q/override", {"phase": "first", "reason": "good enough"}
    for wrong, status in (
        ({"phase": "first"}, 422),
        ({**body, "phase": "third"}, 404),
        ({**body, "phase": "second"}, 409),
    ):
        refused = client.post(path, json=wrong)
        assert refused.status_code == status, refused.text
    assert client.post("/runs/q/actions/bless", json=body).status_code == 404
    assert client.post("/runs/q.1-first/override", json=body).status_code == 404
    before = len(toy_runs.rows(home, "q"))
    for _ in range(2):
        done = client.post(path, json=body, headers={"Idempotency-Key": "once"})
        assert done.status_code == 200, done.text
    assert [row.type for row in toy_runs.rows(home, "q")[before:]] == ["gate_overridden", "retried"]
    assert toy_runs.finish(home, "q").completed
    gates = panel(client, "q", "gates")
    told = gates["gates"][0]
    assert (told["verdict"], told["reason"], told["about"]) == ("overridden", "good enough", None)


# ---- one moment for all ----------------------------------------------------------------------


def test_a_position_of_the_log_shows_the_pipeline_and_its_runs_as_they_were(
    client: TestClient, tmp_path: Path
) -> None:
    """What was shown while it went on is shown again, from the log alone."""
    whole: Any = client.get("/runs/p/moments").json()
    home = Home(tmp_path / "home")
    lengths = {run: len(toy_runs.rows(home, run)) for run in ("p", "p.1-first", "p.2-second")}
    assert (whole["total"], whole["next"]) == (sum(lengths.values()), None)
    positions = [one["position"] for one in whole["moments"]]
    assert positions == sorted(positions)
    counted = dict.fromkeys(lengths, 0)
    seen = []
    for moment in whole["moments"]:
        counted[moment["run"]] += 1
        assert moment["place"] == counted[moment["run"]]
        if moment["run"] == "p" or moment["type"] == "step_completed":
            seen.append(standing(client, upto=moment["position"]))
    wait, end = ("waiting", None), ("ended", None)
    # Behind its last step a run has not completed yet.
    steps = [[("running", share), wait] for share in (1 / 2, 0.99)]
    steps += [[end, wait], [end, wait]]
    steps += [[end, ("running", share)] for share in (1 / 3, 2 / 3, 0.99)]
    assert seen == [[wait, wait], [wait, wait], *steps, [end, end], [end, end]]
    first = next(m for m in whole["moments"] if m["type"] == "step_completed")
    child = client.get("/runs/p.1-first", params={"upto": first["position"]}).json()
    assert (child["place"], child["places"]) == (first["place"], lengths["p.1-first"])
    then = panel(client, "p", "timeline", upto=first["position"])
    assert [lane["bars"][0]["end"] for lane in then["lanes"] if lane["group"] == "runs"] == [None]
    page = client.get("/runs/p/moments", params={"after": first["position"], "limit": 2}).json()
    assert [m["position"] for m in page["moments"]] == positions[
        positions.index(first["position"]) + 1 :
    ][:2]
    assert page["next"] == page["moments"][-1]["position"]


def test_an_event_of_the_pipeline_shows_its_runs_as_they_were_then(client: TestClient) -> None:
    """A place of its own history is a position of the log."""
    rows = client.get("/runs/p/events").json()["events"]
    ended = next(row for row in rows if row["type"] == "phase_ended")
    assert standing(client, at=ended["place"]) == [("ended", None), ("waiting", None)]
    assert standing(client, at=2) == [("waiting", None)] * 2
    picture = client.get("/runs/p/panels/strip.csv", params={"upto": ended["position"]})
    assert picture.text.splitlines()[2].startswith("2,second,toy,waiting,")


def test_a_moment_that_is_none_is_refused_in_words(client: TestClient) -> None:
    answer = client.get("/runs/p.2-second/panels", params={"upto": 3})
    assert answer.status_code == 404
    assert answer.json()["detail"] == "run p.2-second had not begun at position 3 of the log."
    for path in ("/runs/p", "/runs/p/panels"):
        both = client.get(path, params={"upto": 3, "at": 2})
        assert both.status_code == 422
        assert "one of them" in both.json()["detail"]


def test_a_phase_s_run_says_where_it_stands(client: TestClient, tmp_path: Path) -> None:
    """A run whose name looks like a phase's is of no pipeline: what counts is who asked for it."""
    first = client.get("/runs/p.1-first").json()
    assert first["part_of"] == {
        "run": "p",
        "name": "p",
        "stage": "1 first",
        "previous": None,
        "next": "p.2-second",
    }
    whole = client.get("/runs/p").json()
    assert (first["delegates"], whole["delegates"]) == (False, True)
    assert client.get("/runs/p.2-second").json()["part_of"]["previous"] == "p.1-first"
    toy_runs.submit(Home(tmp_path / "home"), "p.3-third")
    assert client.get("/runs/p.3-third").json()["part_of"] is None
    assert client.get("/runs/p").json()["part_of"] is None
