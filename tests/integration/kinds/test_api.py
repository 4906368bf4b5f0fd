"""The API over toy runs: what every kind of run has, by the routes that every kind shares."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from agent_forge.api import openapi_document
from agent_forge.api.app import create
from agent_forge.api.live import Hub
from agent_forge.api.options import LOOPBACK, Options
from agent_forge.api.schemas.runs import Components
from agent_forge.evomerge.fitness import composite
from agent_forge.runs import kinds
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.runs.panels.panels import Panel
from agent_forge.worker.commands import accounts, submit
from agent_forge.worker.exports import panel_picture
from testing.toy import long_kind, toy_kind, toy_runs
from testing.toy.toy_state import digest_of
from testing.waiting import wait_until


@contextmanager
def served(home: Home, models: Path) -> Iterator[TestClient]:
    """Give a server over a home, which reads models below a new folder, asked by an admin."""
    models.mkdir()
    store = home.open_store()
    accounts.add(store, "ada", "admin")
    token = accounts.issue(store, "ada")[1]
    store.close()
    options = Options((models,), rate=1e5, hosts=(*LOOPBACK, "testserver"))
    with TestClient(create(home, options)) as client:
        client.headers["Authorization"] = f"Bearer {token}"
        yield client


@pytest.fixture
def client(ended: Home, tmp_path: Path) -> Iterator[TestClient]:
    """A server over a finished toy run."""
    with served(ended, tmp_path / "models") as client:
        yield client


def got(client: TestClient, path: str, status: int = 200) -> Any:
    """Return the JSON of a GET."""
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    return answer.json()


def post(client: TestClient, path: str, status: int, **body: Any) -> Any:
    """Return the JSON of a POST."""
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_the_kind_and_its_settings_are_listed(client: TestClient) -> None:
    listed = {kind["name"]: kind for kind in got(client, "/kinds")["kinds"]}
    assert set(listed) >= {"evomerge", "toy"}
    assert listed["toy"]["unit"] == "step"
    told = got(client, "/settings?kind=toy")
    assert told["defaults"]["steps"] == 2
    assert "width" in told["schema"]["properties"]


def test_a_run_is_listed_and_shown_now_and_as_it_was(client: TestClient, ended: Home) -> None:
    state = toy_runs.state(ended)
    (row,) = got(client, "/runs")["runs"]
    assert (row["kind"], row["status"], row["generation"]) == ("toy", "completed", 1)
    assert row["champion"] == digest_of(state.total)
    assert row["curve"] == [one.total for one in state.steps]
    assert (row["done_unit"], row["curve_of"]) == ("step", "total")
    told = (row["metric"], row["value"], row["unit"], row["better"], row["measured_on"])
    assert told == ("total", state.total, "", "up", "")
    told = got(client, "/runs/r")
    assert (told["kind"], told["place"], told["places"]) == ("toy", state.place, state.place)
    assert told["totals"] == [one.total for one in state.steps]
    assert told["allowed"] == ["export", "fork"]
    past = got(client, "/runs/r?at=4")
    assert (past["status"], past["place"], past["totals"]) == ("running", 4, [])
    assert past["pending"] == ["count/0/2"]
    assert past["words"] == {"count/0/2": "count slot 2 of step 0"}


def test_results_sort_runs_of_one_kind_only(client: TestClient) -> None:
    """Results of two kinds are of two metrics: their order would say nothing."""
    assert len(got(client, "/runs?kind=toy&sort=value")["runs"]) == 1
    assert "choose one kind" in got(client, "/runs?sort=value", 422)["detail"]


def test_events_and_head_are_told_in_words(client: TestClient) -> None:
    told = got(client, "/runs/r/events")
    assert told["total"] == len(told["events"]) == 11
    assert told["events"][-1]["gist"] == "total of step 1"
    head = got(client, "/runs/r/head")
    assert (head["done"], head["of"], head["inside"], head["status"]) == (2, 2, 1.0, "completed")
    assert head["unit"] == "steps"


def test_parts_that_only_other_kinds_have_are_not_found(client: TestClient) -> None:
    """In words, and its own parts are."""
    for part in ("population", "candidates/x"):
        told = got(client, f"/runs/r/{part}", 404)
        assert "run r is a toy run: it has no " in told["detail"]
    assert len(got(client, "/runs/r/lineage")["steps"]) == 2
    told = got(client, "/runs/r/layers?candidate=" + digest_of(0), 404)
    assert "no total" in told["detail"]
    first = got(client, "/runs/r/lineage")["steps"][0]["total"]
    told = got(client, "/runs/r/layers?candidate=" + digest_of(first), 404)
    assert "it has no layers" in told["detail"]


@pytest.mark.slow
def test_a_run_is_checked_started_asked_and_carried_on(client: TestClient, ended: Home) -> None:
    """Submission opens nothing in the server itself: a process beside it does, of the same kinds."""
    told = post(client, "/runs/check", 200, kind="toy", config={"steps": 1})
    assert told["config"]["steps"] == 1
    assert any("a worker" in warning for warning in told["warnings"])
    run = post(client, "/runs", 201, kind="toy", config={"steps": 1}, labels=["big"])["run"]
    assert got(client, f"/runs/{run}")["status"] == "submitted"
    assert "wait" in str(got(client, "/queue")["runs"][0])
    for path, body, status in (
        ("pause", {"reason": "lunch"}, "paused"),
        ("resume", {}, "submitted"),
        ("priority", {"priority": 3}, "submitted"),
    ):
        post(client, f"/runs/{run}/{path}", 200, **body)
        assert got(client, f"/runs/{run}")["status"] == status
    assert post(client, f"/runs/{run}/pause", 200)["asked"] == "paused"
    assert "it is paused already" in post(client, f"/runs/{run}/pause", 409)["detail"]
    post(client, f"/runs/{run}/resume", 200)
    toy_runs.finish(ended, run)
    assert got(client, f"/runs/{run}")["status"] == "completed"
    told = got(client, f"/compare?runs={run},r")
    assert {"name": "steps", "values": [1, 2]} in told["settings"]
    assert [judgement["why_not"] for judgement in told["judgements"]] == [None]
    [totals] = told["lines"]
    assert [line["name"] for line in totals["series"]] == [run, "r"]
    assert "2 to 6 runs" in got(client, "/compare?runs=r,r", 422)["detail"]
    assert got(client, "/compare?runs=r,nosuch", 404)
    wrong = post(client, "/runs", 422, kind="toy", config={"width": 0, "colour": 1})
    assert {e["field"] for e in wrong["errors"]} == {"config.width", "config.colour"}
    assert "takes neither models nor data" in str(
        post(client, "/runs", 422, kind="toy", models=[str(ended.folder.parent / "models")])
    )


def test_a_run_is_forked_and_cancelled(client: TestClient, ended: Home) -> None:
    name = post(client, "/runs/r/fork", 201, generation=1, settings={"steps": 3})["run"]
    told = got(client, f"/runs/{name}")
    assert told["forked_from"] == {"run": "r", "run_name": "r", "place": 9, "version": 9}
    assert told["config"]["steps"] == 3
    post(client, f"/runs/{name}/cancel", 200, reason="enough")
    assert got(client, f"/runs/{name}")["reason"] == "enough"
    told = post(client, "/runs/r/fork", 422, at=4, settings={"steps": -1})
    assert told["errors"][0]["field"] == "settings.steps"


def test_live_messages_come_with_the_ends_of_units_and_of_the_run(
    client: TestClient, ended: Home
) -> None:
    """The source documents' messages have the kind's own fields."""
    hub: Hub = client.app.state.hub  # type: ignore[attr-defined]
    told: dict[str, list[dict[str, Any]]] = {}
    for row in toy_runs.rows(ended):
        found = hub.tell(row)
        assert found
        told.setdefault(row.type, []).extend(map(json.loads, found.texts))
    assert [m["type"] for m in told["counted"]] == ["event"] * 6
    progress = [m for m in told["step_completed"] if m["type"] == "progress"]
    assert [m["phase"] for m in progress] == ["toy", "toy"]
    (done,) = (m for m in told["completed"] if m["type"] == "complete")
    assert (done["phase"], done["total"]) == ("toy", toy_runs.state(ended).total)


def test_the_documents_paths_serve_every_kind(client: TestClient) -> None:
    """Status and results of the newest run, or of one of that kind; `phases` has them all."""
    told = got(client, "/phases/status")
    assert told["phases"] == {**dict.fromkeys(kinds.KINDS), "toy": told["phases"]["toy"]}
    assert (told["phase"], told["run"], told["percent"]) == ("toy", "r", 100.0)
    status = got(client, "/phases/toy/status")
    assert (status["run"], status["message"]) == ("r", "completed")
    assert got(client, "/phases/toy/results?run=r")["success"] is True
    assert "no runs yet" in got(client, "/phases/evomerge/status", 404)["detail"]
    assert (
        f"there are {', '.join(sorted({*kinds.KINDS, 'toy'}))}"
        in got(client, "/phases/poetry/status", 404)["detail"]
    )
    for path in ("status", "results"):
        told = got(client, f"/phases/evomerge/{path}?run=r", 404)
        assert told["detail"] == "run r is a toy run: see `GET /runs/r`."


def test_a_result_is_exported_in_a_process_beside_the_server(
    client: TestClient, ended: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows the same kinds as the server."""
    monkeypatch.setenv("FORGE_HOME", str(ended.folder))
    monkeypatch.delenv("FORGE_DATABASE_URL", raising=False)
    post(client, "/runs/r/export", 202)
    wait_until(lambda: got(client, "/runs/r/export")["status"] != "running", "the export ends")
    told = got(client, "/runs/r/export")
    assert told["status"] == "done", told
    assert json.loads((Path(told["folder"]) / "total.json").read_text())["run"] == "r"
    assert toy_runs.rows(ended)[-1].type == "exported"


def test_the_components_that_the_api_describes_are_those_of_merging_runs() -> None:
    """The API imports no kind, so it describes them itself."""
    assert openapi_document.shape(Components.model_json_schema()) == openapi_document.shape(
        composite.Components.model_json_schema()
    )


# ---- panels ----------------------------------------------------------------------------------


def test_head_and_panels_say_what_the_run_says(client: TestClient) -> None:
    """A page draws them without knowing the kind."""
    told, run = got(client, "/runs/r/panels"), got(client, "/runs/r")
    head = told["head"]
    assert (head["done"], head["of"], head["unit"]) == (2, 2, "step")
    assert head["result"]["value"] == run["totals"][-1]
    assert head["now"] is None
    panels = {panel["name"]: panel for panel in told["panels"]}
    assert {name: panel["kind"] for name, panel in panels.items()} == {
        "totals": "lines",
        "steps": "units",
        "tasks": "units",
    }
    assert panels["totals"]["series"][0]["y"] == run["totals"]
    assert [row[1] for row in panels["steps"]["rows"]] == run["totals"]
    assert {row[1] for row in panels["tasks"]["rows"]} == {"done"}
    assert len(panels["tasks"]["rows"]) == 6


def test_one_panel_is_given_whole_as_json_and_as_csv(client: TestClient) -> None:
    totals = got(client, "/runs/r")["totals"]
    assert got(client, "/runs/r/panels/totals.json")["series"][0]["y"] == totals
    answer = client.get("/runs/r/panels/steps.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.text == f"step,total\r\n0,{totals[0]}\r\n1,{totals[1]}\r\n"
    said = got(client, "/runs/r/panels/nothing.csv", 404)["detail"]
    assert "totals, steps, tasks" in said


def test_the_panels_are_given_as_markdown(client: TestClient) -> None:
    """As `forge show RUN --report` prints them."""
    answer = client.get("/runs/r/panels.md")
    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
    totals = got(client, "/runs/r")["totals"]
    lines = answer.text.splitlines()
    assert lines[0] == "# Run r"
    assert "## Steps" in lines
    assert f"| 1 | {totals[1]} |" in lines
    assert "Done: 0 of 2 (step)." in client.get("/runs/r/panels.md?at=4").text


def test_a_part_of_long_lines_is_given_with_all_of_its_points(
    ended: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of panels has 2,000 of 100,000; a hundred steps are there when they are asked for."""
    monkeypatch.setenv(kinds.FURTHER, f"{toy_kind.KNOWN},{long_kind.KNOWN}")
    with closing(ended.open_store()) as store:
        submit.submit(store, submit.plan(RunRequest("long", {})), "l")
    toy_runs.finish(ended, "l")
    with served(ended, tmp_path / "models") as client:
        coarse = got(client, "/runs/l/panels")["panels"][0]
        assert coarse["total"] == long_kind.POINTS
        assert len(coarse["series"][0]["x"]) <= 2000
        part = got(client, "/runs/l/panels/long.json?from=70000&to=70100")
        assert part["series"][0]["x"] == list(range(69_999, 70_102))
        assert part["series"][0]["y"][2] == 5
        assert len(got(client, "/runs/l/panels/long.json?to=50000.5")["series"][0]["x"]) <= 2000
        assert len(got(client, "/runs/l/panels/long.json")["series"][0]["x"]) == long_kind.POINTS
        got(client, "/runs/l/panels/long.json?from=nan", 422)
        said = got(client, "/runs/r/panels/steps.json?from=1", 422)["detail"]
        assert "panel steps has no lines" in said


def test_one_panel_is_drawn_as_on_the_command_line(client: TestClient) -> None:
    """By a process beside the server, which has the drawing library; the bytes are the same."""
    panel = TypeAdapter(Panel).validate_python(got(client, "/runs/r/panels/totals.json"))
    for form, media_type in (("svg", "image/svg+xml"), ("png", "image/png")):
        answer = client.get(f"/runs/r/panels/totals.{form}")
        assert answer.headers["content-type"].partition(";")[0] == media_type
        assert f'filename="totals.{form}"' in answer.headers["content-disposition"]
        assert answer.content == panel_picture.picture(panel, form)
    assert "totals, steps, tasks" in got(client, "/runs/r/panels/nothing.png", 404)["detail"]


def test_an_event_says_which_unit_of_the_run_it_ends(client: TestClient) -> None:
    """A page marks units without knowing the kind's events."""
    events = got(client, "/runs/r/events")["events"]
    ends = {event["unit"]: event["type"] for event in events}
    assert ends.pop(None)
    assert ends == {0: "step_completed", 1: "step_completed"}


def test_panels_of_the_past_are_those_of_then(client: TestClient) -> None:
    """Nothing is known of what devices did then."""
    rows = got(client, "/runs/r/events")["events"]
    place = next(row["place"] for row in rows if row["type"] == "step_completed")
    told = got(client, f"/runs/r/panels?at={place}")
    assert told["head"]["place"] == place
    assert told["head"]["done"] == 1
    assert told["head"]["now"] is None
    assert told["panels"][0]["series"][0]["y"] == got(client, "/runs/r")["totals"][:1]


def test_the_list_is_sorted_and_filtered_by_kind(client: TestClient, ended: Home) -> None:
    """Pages of a sorted list follow one another; runs without a value come last."""
    toy_runs.submit(ended, "a", steps=2)
    toy_runs.finish(ended, "a")
    toy_runs.submit(ended, "z", steps=5)
    for sort, order, wanted in (
        ("run", "up", ["a", "r", "z"]),
        ("run", "down", ["z", "r", "a"]),
        ("status", "up", ["a", "r", "z"]),
    ):
        page = got(client, f"/runs?sort={sort}&order={order}&limit=2")
        more = got(client, f"/runs?sort={sort}&order={order}&limit=2&before={page['next']}")
        assert (page["total"], more["next"]) == (3, None)
        found = [row["run"] for row in (*page["runs"], *more["runs"])]
        assert found[:1] == wanted[:1] if sort == "run" else found[-1:] == wanted[-1:]
        assert sorted(found) == ["a", "r", "z"]
    assert got(client, "/runs?kind=evomerge")["total"] == 0
    assert got(client, "/runs?kind=toy")["total"] == 3
    got(client, "/runs?sort=colour", 422)


def test_a_run_can_be_asked_for_again(client: TestClient) -> None:
    """With the settings that are no default; the answer is a body of POST /runs/check."""
    told = got(client, "/runs/r/asked")
    assert told["kind"] == "toy"
    assert told["models"] == told["data"] == []
    checked = client.post("/runs/check", json=told)
    assert checked.status_code == 200, checked.text
    assert checked.json()["config"] == got(client, "/runs/r")["config"]
