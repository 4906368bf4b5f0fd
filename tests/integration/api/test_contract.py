"""What every endpoint says, compared with the log; errors; conditional requests; idempotency."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from agent_forge.evomerge.reports import generation_rows, report
from agent_forge.runs.history import repository
from testing.worlds.fake_world import RUN
from tests.integration.api.conftest import Served


def state_of(served: Served, run: str = RUN):
    store = served.home.open_store()
    try:
        return repository.load(store, run), list(repository.history(store, run))
    finally:
        store.close()


def test_the_list_has_every_run_once_page_by_page(served: Served) -> None:
    whole = served.get("/runs").json()
    names = [row["run"] for row in whole["runs"]]
    assert (len(names), whole["total"], whole["next"]) == (5, 5, None)
    assert served.get("/runs", params={"limit": 5}).json() == whole
    pages, cursor = [], None
    while True:
        page = served.get("/runs", params={"limit": 2} | ({"before": cursor} if cursor else {})).json()
        pages += [row["run"] for row in page["runs"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert pages == names


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"status": "paused"}, ["half"]),
        ({"owner": "viewer"}, ["viewer's"]),
        ({"q": "hal"}, ["half"]),
        ({"q": "%"}, []),
        ({"label": "big"}, []),
    ],
)
def test_filters(served: Served, query: dict[str, str], expected: list[str]) -> None:
    named = [served.forks["viewer"] if e == "viewer's" else e for e in expected]
    page = served.get("/runs", params=query).json()
    assert ([row["run"] for row in page["runs"]], page["total"]) == (named, len(named))


def test_a_run_says_what_its_log_says(served: Served) -> None:
    state, rows = state_of(served)
    body = served.get(f"/runs/{RUN}").json()
    assert (body["status"], body["place"], body["places"]) == ("completed", len(rows), len(rows))
    assert body["champion"]["recipe_id"] == state.champion
    assert state.completed
    assert body["test"]["score"] == state.completed.test.scalar
    told = [
        {k: g[k] for k in r}
        for g, r in zip(body["generations"], generation_rows.rows(state), strict=True)
    ]
    assert told == generation_rows.rows(state)
    assert body["rivals"] == json.loads(json.dumps(report.rivals(state)))
    assert body["allowed"] == ["export", "fork"]
    assert served.get("/runs/half").json()["allowed"] == ["resume", "cancel", "priority", "fork"]


def test_the_slider_shows_every_place_that_was_a_state(served: Served) -> None:
    """Each place is the fold of the events before it; inside of an append there was no state."""
    from agent_forge.evomerge.run.state import fold

    _, rows = state_of(served)
    refused = 0
    for place in range(1, len(rows) + 1):
        answer = served.get(f"/runs/{RUN}", params={"at": place})
        if place < len(rows) and rows[place].causation is not None:
            refused += 1
            assert answer.status_code == 422
            assert "in the middle of one append" in answer.json()["detail"]
            continue
        then, body = fold(rows[:place]), answer.json()
        assert (body["place"], body["status"]) == (place, then.status)
        assert (body["champion"] or {}).get("recipe_id") == then.champion
        assert len(body["generations"]) == len(then.generations)
        assert body["head"] == rows[place - 1].hash
    assert refused


def test_events_forwards_and_backwards_are_the_history_of_a_fork_too(served: Served) -> None:
    for run in (RUN, served.forks["admin"]):
        _, rows = state_of(served, run)
        for step in (7, 1000):
            found, after = [], 0
            while after is not None:
                page = served.get(f"/runs/{run}/events", params={"after": after, "limit": step}).json()
                found += page["events"]
                after = page["next"]
            assert [e["hash"] for e in found] == [row.hash for row in rows]
            assert [e["place"] for e in found] == list(range(1, len(rows) + 1))
            back, before = [], len(rows) + 1
            while before is not None:
                page = served.get(
                    f"/runs/{run}/events", params={"before": before, "limit": step}
                ).json()
                back += page["events"]
                before = page["next"]
            assert back == found[::-1]
    bare = served.get(f"/runs/{RUN}/events", params={"data": "false"}).json()["events"]
    assert all(e["data"] == {} for e in bare)


def test_population_candidates_and_lineage_are_the_states(served: Served) -> None:
    state, _ = state_of(served)
    everything = served.get(f"/runs/{RUN}/population", params={"generation": "all"}).json()["rows"]
    assert {(r["generation"], r["slot"], r["recipe_id"]) for r in everything} == {
        (*place, c.recipe_id) for place, c in state.candidates.items()
    }
    newest = served.get(f"/runs/{RUN}/population").json()
    assert {r["generation"] for r in newest["rows"]} == {newest["generation"]}
    champion = served.get(f"/runs/{RUN}/candidates/champion").json()
    assert champion["recipe_id"] == state.champion
    assert champion["recipe"] == state.recipes[champion["recipe_id"]].model_dump(mode="json")
    graph = served.get(f"/runs/{RUN}/lineage").json()
    ids = {node["id"] for node in graph["nodes"]}
    assert state.champion in ids
    assert all(edge["from"] in ids and edge["to"] in ids for edge in graph["edges"])
    parents = {node["id"]: set(node["parents"]) for node in graph["nodes"]}
    assert {(e["from"], e["to"]) for e in graph["edges"]} == {
        (p, child) for child, all_ in parents.items() for p in all_ & ids
    }


def test_what_did_not_change_is_not_sent_again(served: Served) -> None:
    for path in (f"/runs/{RUN}", "/runs", f"/runs/{RUN}/lineage", f"/runs/{RUN}?at=3", "/settings"):
        first = served.get(path)
        tag = first.headers["etag"]
        again = served.get(path, headers={"If-None-Match": tag})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert served.get(path, headers={"If-None-Match": '"other"'}).json() == first.json()
    tag = served.get("/runs/half").headers["etag"]
    assert served.ask("POST", "/runs/half/resume", json={}).status_code == 200
    assert served.get("/runs/half", headers={"If-None-Match": tag}).status_code == 200


def test_what_is_asked_is_an_event_with_its_actor_and_reason(served: Served) -> None:
    run = served.forks["submitter"]
    asked = [
        ("pause", {"reason": "a"}),
        ("resume", {"reason": "b"}),
        ("priority", {"priority": 7}),
        ("cancel", {"reason": "c"}),
    ]
    for name, body in asked:
        answer = served.ask("POST", f"/runs/{run}/{name}", "submitter", json=body)
        assert answer.status_code == 200, answer.text
    _, rows = state_of(served, run)
    told = [(row.type, row.actor, json.loads(row.data).get("reason")) for row in rows[-4:]]
    assert told == [
        ("paused", "submitter", "a"),
        ("resumed", "submitter", "b"),
        ("priority_changed", "submitter", None),
        ("cancelled", "submitter", "c"),
    ]
    again = served.ask("POST", f"/runs/{run}/cancel", "submitter", json={})
    assert (again.status_code, again.headers["content-type"]) == (409, "application/problem+json")


def test_a_key_asks_once(served: Served) -> None:
    run, key = served.forks["admin"], {"Idempotency-Key": "k"}
    first = served.ask("POST", f"/runs/{run}/pause", json={"reason": "x"}, headers=key)
    again = served.ask("POST", f"/runs/{run}/pause", json={"reason": "x"}, headers=key)
    other = served.ask("POST", f"/runs/{run}/pause", json={"reason": "y"}, headers=key)
    assert [a.status_code for a in (first, again, other)] == [200, 200, 409]
    body = {"generation": 1, "settings": {"generations": 4}, "reason": "longer"}
    made = [served.ask("POST", f"/runs/{RUN}/fork", json=body, headers=key).json()["run"] for _ in "ab"]
    assert made[0] == made[1]
    assert state_of(served, made[0])[0].forked.reason == "longer"
    changed = {**body, "settings": {"generations": 5}}
    assert served.ask("POST", f"/runs/{RUN}/fork", json=changed, headers=key).status_code == 409


def test_a_fork_says_what_is_wrong_with_it(served: Served) -> None:
    for body, status, words in (
        ({}, 422, "say where to fork"),
        ({"at": 10_000}, 404, "there is no event"),
        ({"generation": 1, "settings": {"normalise": "none"}}, 422, "cannot change in a fork"),
        ({"generation": 1, "settings": {"nonsense": 1}}, 422, "nonsense"),
        ({"generation": 1, "other": 1}, 422, "other"),
    ):
        answer = served.ask("POST", f"/runs/{RUN}/fork", json=body)
        assert answer.status_code == status
        assert words in answer.json()["detail"]
    body = {"generation": 1, "settings": {"mutation_rate": 2, "fitness_weights": {"accuracy": "x"}}}
    wrong = served.ask("POST", f"/runs/{RUN}/fork", json=body).json()["errors"]
    assert {part["field"]: part["message"][:21] for part in wrong} == {
        "settings.mutation_rate": "Input should be less ",
        "settings.fitness_weights.accuracy": "Input should be a val",
    }


def test_a_setting_that_the_strategy_lacks_is_named_with_the_strategies_that_have_it(
    served: Served,
) -> None:
    """A form puts the sentence beside the setting, whether it was given flat or nested."""
    sentence = (
        "setting niching belongs to tournament, not to strategy auto: leave it out, or set strategy"
    )
    for config in (
        {"strategy": "auto", "niching": "both"},
        {"search": {"strategy": "auto", "niching": "both"}},
    ):
        body = {"models": ["a", "b"], "config": config}
        answer = served.ask("POST", "/runs/check", json=body)
        assert answer.status_code == 422
        assert answer.json()["errors"] == [{"field": "config.niching", "message": sentence}]
    body = {"generation": 1, "settings": {"search": {"niching": "both"}}}
    (wrong,) = served.ask("POST", f"/runs/{RUN}/fork", json=body).json()["errors"]
    assert wrong["field"] == "settings.niching"
    assert "belongs to tournament, not to strategy elite-loser" in wrong["message"]


def test_a_fork_takes_settings_of_the_search_flat_nested_and_by_their_place(served: Served) -> None:
    """The log has flat changes, whatever the body was like; the run's settings are shown flat."""
    for settings in (
        {"mutation_rate": 0.3},
        {"search": {"mutation_rate": 0.3}},
        {"search.mutation_rate": 0.3},
    ):
        body = {"generation": 1, "settings": settings}
        run = served.ask("POST", f"/runs/{RUN}/fork", json=body).json()["run"]
        forked = state_of(served, run)[0].forked
        assert forked.changes == {"mutation_rate": 0.3}
        assert forked.config.search.mutation_rate == 0.3
        assert served.get(f"/runs/{run}").json()["config"]["mutation_rate"] == 0.3


def test_the_known_settings_say_which_strategies_have_them(served: Served) -> None:
    """The form shows those of the chosen strategy; a setting of every run names none."""
    told = served.get("/settings").json()
    properties = told["schema"]["properties"]
    assert properties["niching"]["strategies"] == ["tournament"]
    assert "strategies" not in properties["seed"]
    assert set(properties) == set(told["defaults"])
    assert {kind["type"] for kind in properties["budget_hours"]["anyOf"]} == {
        "number",
        "string",
        "null",
    }


def test_problems_are_problem_details(served: Served) -> None:
    for path, status in (
        ("/runs/none", 404),
        ("/runs?limit=0", 422),
        ("/nothing", 404),
        (f"/runs/{RUN}?at=99999", 404),
        ("/runs?status=odd", 422),
    ):
        answer = served.get(path)
        assert answer.headers["content-type"] == "application/problem+json"
        body = answer.json()
        assert (answer.status_code, body["status"]) == (status, status)
        assert body["title"]
        assert body["detail"]
    assert served.ask("PUT", "/runs").status_code == 405
    large = served.ask("POST", "/runs/check", content=b" " * (2 << 20))
    assert (large.status_code, large.json()["title"]) == (413, "Content Too Large")


def test_numbers_that_are_none_are_refused_before_any_work(served: Served) -> None:
    body = '{"path": "x", "metrics": {"test": NaN}}'
    head = {"Content-Type": "application/json"}
    answer = served.ask("POST", "/models", content=body, headers=head)
    assert answer.status_code == 422
    assert "metrics" in answer.text


def test_the_source_documents_paths_are_aliases(served: Served) -> None:
    progress = served.get("/phases/evomerge/status", params={"run": RUN}).json()
    state, rows = state_of(served)
    assert progress["best_fitness"] == state.champions[-1].score
    results = served.get("/phases/evomerge/results", params={"run": RUN}).json()
    assert results["metrics"] == json.loads(json.dumps(report.report(state, rows)["metrics"]))
    assert served.get("/phases/evomerge/results", params={"run": "half"}).status_code == 409
    assert [m["id"] for m in served.get("/models/list").json()] == [
        m["id"] for m in served.get("/models").json()["models"]
    ]


def test_the_answers_may_not_be_framed_and_load_nothing_foreign(served: Served) -> None:
    headers = served.get("/health", None).headers
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert (
        "access-control-allow-origin"
        not in served.get("/runs", headers={"Origin": "http://evil"}).headers
    )


@pytest.mark.slow
def test_positions_in_the_list_are_cursors_that_new_runs_do_not_move(served: Served) -> None:
    page = served.get("/runs", params={"limit": 3}).json()
    body = {"generation": 1, "settings": {"generations": 4}}
    assert served.ask("POST", f"/runs/{RUN}/fork", json=body).status_code == 201
    rest = served.get("/runs", params={"limit": 3, "before": page["next"]}).json()["runs"]
    names = [row["run"] for row in [*page["runs"], *rest]]
    assert len(set(names)) == len(names) == 5
    assert all(a["submitted_at"] >= b["submitted_at"] for a, b in pairwise([*page["runs"], *rest]))


def test_genes_have_names_that_say_what_they_turn() -> None:
    """Of golden logs: pipelines, groups of tensors, paths."""
    from pathlib import Path

    from agent_forge.evomerge.reports import page
    from agent_forge.evomerge.run.state import fold
    from tests.golden.test_golden import FOLDER, rows_of

    def genes(name: str) -> dict[str, float]:
        state = fold(rows_of(Path(FOLDER / name)))
        return page.population(state, None, False)["rows"][0]["genes"]

    assert {"ts 0", "drop", "layers 2", "noise 1"} <= set(genes("schema-1-1.jsonl"))
    grouped = genes("schema-1-10.jsonl")
    assert grouped["layers 1/3 attention weights a"] == grouped["embedding weights a"]
    path = genes("schema-1-13.jsonl")
    assert {"step 1 block", "step 2 scale", "head weights c"} <= set(path)


def test_panels_say_what_the_run_says(served: Served) -> None:
    """The page of a merging run and its panels show the same figures."""
    run, told = served.get(f"/runs/{RUN}").json(), served.get(f"/runs/{RUN}/panels").json()
    panels = {panel["name"]: panel for panel in told["panels"]}
    leads = [arm["lead"] and arm["lead"]["low"] for arm in panels["rivals"]["arms"][1:]]
    assert leads == [rival["low"] for rival in run["rivals"]]
    assert told["head"]["result"]["value"] == run["headline"]["score"]
    best = next(s for s in panels["scores"]["series"] if s["name"] == "best")
    assert best["y"] == [row["best"] for row in run["generations"]]
    assert told["head"]["now"] is None


def test_what_a_run_does_now_is_marked_live(served: Served) -> None:
    """It comes from leases, so that a page does not show it at a place of the past."""
    told = served.get("/runs/half/panels").json()
    activity = served.get("/runs/half/head").json()
    assert told["head"]["now"]["live"] is True
    for name in ("doing", "waits_for"):
        assert told["head"]["now"][name] == activity[name]
    assert told["head"]["now"]["waits_for"] == "someone to resume it"
    past = served.get("/runs/half/panels", params={"at": 3}).json()
    assert past["head"]["now"] is None
