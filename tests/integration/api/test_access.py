"""Who may do what: every endpoint × every role, tokens, rates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_forge.api.access.authorization import Buckets
from agent_forge.api.app import create
from agent_forge.api.options import Options
from agent_forge.events.databases.sqlite import open_store
from agent_forge.runs.errors import ConfigError, ConflictError, NotFoundError
from agent_forge.runs.home import Home
from agent_forge.worker.commands import accounts
from testing.worlds.fake_world import RUN
from tests.integration.api.conftest import ROLES, Served

ROOT = Path(__file__).resolve().parents[3]

#: What is asked of a run, which must be the asker's own.
ASKED = ("pause", "resume", "cancel", "retry", "priority", "export")

#: Endpoint → the lowest role that may use it; None: anybody.
MATRIX: dict[tuple[str, str], str | None] = {
    ("GET", "/health"): None,
    ("GET", "/"): None,
    ("GET", "/me"): "viewer",
    ("GET", "/runs"): "viewer",
    ("GET", "/runs/{run}"): "viewer",
    ("GET", "/runs/{run}/head"): "viewer",
    ("GET", "/runs/{run}/panels"): "viewer",
    ("GET", "/runs/{run}/panels.md"): "viewer",
    ("GET", "/runs/{run}/report.md"): "viewer",
    ("GET", "/runs/{run}/report.html"): "viewer",
    ("GET", "/runs/{run}/panels/{name}.csv"): "viewer",
    ("GET", "/runs/{run}/panels/{name}.json"): "viewer",
    ("GET", "/runs/{run}/panels/{name}.{form}"): "viewer",
    ("GET", "/runs/{run}/events"): "viewer",
    ("GET", "/runs/{run}/moments"): "viewer",
    ("GET", "/runs/{run}/population"): "viewer",
    ("GET", "/runs/{run}/candidates/{candidate}"): "viewer",
    ("GET", "/runs/{run}/lineage"): "viewer",
    ("GET", "/runs/{run}/layers"): "viewer",
    ("GET", "/compare"): "viewer",
    ("GET", "/runs/{run}/export"): "submitter",
    ("GET", "/runs/{run}/checks"): "viewer",
    ("POST", "/runs/{run}/checks"): "submitter",
    ("POST", "/runs"): "submitter",
    ("POST", "/runs/check"): "submitter",
    ("POST", "/runs/{run}/pause"): "submitter",
    ("POST", "/runs/{run}/resume"): "submitter",
    ("POST", "/runs/{run}/cancel"): "submitter",
    ("POST", "/runs/{run}/retry"): "submitter",
    ("POST", "/runs/{run}/priority"): "submitter",
    ("PATCH", "/runs/{run}"): "submitter",
    ("POST", "/runs/{run}/rename"): "submitter",
    ("POST", "/runs/{run}/override"): "submitter",
    ("POST", "/runs/{run}/fork"): "submitter",
    ("POST", "/runs/{run}/export"): "submitter",
    ("GET", "/pipelines"): "viewer",
    ("GET", "/needs"): "viewer",
    ("GET", "/models"): "viewer",
    ("GET", "/models/list"): "viewer",
    ("GET", "/models/{id}"): "viewer",
    ("GET", "/models/{id}/measurements"): "viewer",
    ("GET", "/models/{id}/files"): "viewer",
    ("GET", "/models/{id}/files/{file}"): "submitter",
    ("GET", "/models/{id}/zip"): "submitter",
    ("GET", "/models/{id}/gguf"): "submitter",
    ("GET", "/models/{id}/gguf-types"): "submitter",
    ("POST", "/models/{id}/folder"): "submitter",
    ("POST", "/models/{id}/gguf"): "submitter",
    ("POST", "/models/{id}/tickets"): "submitter",
    ("POST", "/models"): "submitter",
    ("POST", "/models/create"): "submitter",
    ("PATCH", "/models/{id}"): "submitter",
    ("DELETE", "/models/{id}"): "admin",
    ("GET", "/queue"): "viewer",
    ("GET", "/workers"): "viewer",
    ("GET", "/settings"): "viewer",
    ("GET", "/users"): "admin",
    ("POST", "/users"): "admin",
    ("PATCH", "/users/{name}"): "admin",
    ("DELETE", "/users/{name}"): "admin",
    ("POST", "/users/{name}/tokens"): "admin",
    ("DELETE", "/users/{name}/tokens/{id}"): "admin",
    ("POST", "/phases/{kind}/start"): "submitter",
    ("POST", "/phases/start"): "submitter",
    ("GET", "/phases/{kind}/status"): "viewer",
    ("GET", "/phases/status"): "viewer",
    ("GET", "/runs/{run}/asked"): "viewer",
    ("GET", "/models/{id}/lineage"): "viewer",
    ("GET", "/phases/{kind}/results"): "viewer",
    ("GET", "/live"): "viewer",
    ("GET", "/kinds"): "viewer",
}

#: A body that is taken, where an empty one would be refused before anything else.
BODIES = {
    "/runs/{run}/priority": {"priority": 1},
    "/runs/{run}/rename": {"name": "new"},
    "/runs/{run}/override": {"phase": "merge", "reason": "x"},
    "/runs": {"models": ["a", "b"]},
    "/runs/check": {"models": ["a", "b"]},
    "/phases/{kind}/start": {"models": ["a", "b"]},
    "/phases/start": {"models": ["a", "b"]},
    "/models": {"path": "a"},
    "/models/create": {"path": "a"},
    "/users": {"name": "eve", "role": "viewer"},
    "/users/{name}": {"role": "viewer"},
}

PLACES = {
    "action": "override",
    "kind": "evomerge",
    "run": RUN,
    "other": RUN,
    "candidate": "champion",
    "id": "0000",
    "file": "config.json",
    "form": "csv",
    "name": "nobody",
}


def routes(served: Served) -> set[tuple[str, str]]:
    """Every endpoint of the OpenAPI document, and the dashboard's page."""
    paths = served.get("/openapi.json", None).json()["paths"]
    return {(m.upper(), path) for path, found in paths.items() for m in found} | {("GET", "/")}


def test_the_matrix_has_every_endpoint(served: Served) -> None:
    """One that is forgotten here could be open to all."""
    assert routes(served) == set(MATRIX)


def test_the_table_in_the_docs_is_the_matrix() -> None:
    """Its cells: yes, own runs, 401, 403."""
    told = {}
    for line in (ROOT / "docs" / "api.md").read_text("utf-8").splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[0].startswith(("GET ", "POST ", "PATCH ", "DELETE ")):
            may = ("yes", "own runs", "own models")
            lowest = next((i for i, cell in enumerate(cells[1:]) if cell in may), None)
            assert lowest is not None
            method, path = cells[0].split()
            told[method, path] = [None, *ROLES][lowest]
            own = path.rsplit("/", 1)[-1] in (*ASKED, "rename", "override") and method == "POST"
            own |= (method, path) in (("PATCH", "/runs/{run}"), ("PATCH", "/models/{id}"))
            assert cells[3].startswith("own ") == own
    assert told == MATRIX


@pytest.mark.slow
@pytest.mark.parametrize("endpoint", MATRIX, ids=" ".join)
@pytest.mark.parametrize("who", [None, "stranger", *ROLES])
def test_every_cell_of_the_matrix(shared: Served, who: str | None, endpoint: tuple[str, str]) -> None:
    """401 without a valid token, 403 below the role, and otherwise neither."""
    (method, path), needed = endpoint, MATRIX[endpoint]
    shared.tokens["stranger"] = "forge_nobody"
    body = BODIES.get(path, {}) if method in ("POST", "PATCH") else None
    if path == "/live" and who in ROLES:
        pytest.skip("answers for ever: tests/acceptance/api/test_live.py")
    where = path.format(**PLACES).replace(f"/runs/{RUN}", f"/runs/{shared.forks.get(who or '', RUN)}")
    answer = (
        shared.ask(method, where, who, json=body)
        if body is not None
        else shared.ask(method, where, who)
    )
    if needed is None:
        assert answer.status_code in (200, 404)
    elif who in (None, "stranger"):
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    elif ROLES.index(who) < ROLES.index(needed):
        assert answer.status_code == 403
        assert needed in answer.json()["detail"]
    else:
        assert answer.status_code not in (401, 403, 500), answer.text


@pytest.mark.slow
@pytest.mark.parametrize("what", ASKED)
def test_a_submitter_may_ask_nothing_of_somebody_elses_run(served: Served, what: str) -> None:
    """An admin may; forking is free to all submitters."""
    run = served.forks["viewer"]
    body = {"priority": 1} if what == "priority" else {}
    answer = served.ask("POST", f"/runs/{run}/{what}", "submitter", json=body)
    assert answer.status_code == 403
    assert served.ask("POST", f"/runs/{run}/{what}", "admin", json=body).status_code in (200, 409)
    act = {"phase": "merge", "reason": "x"}
    assert served.ask("POST", f"/runs/{run}/override", "submitter", json=act).status_code == 403
    forked = served.ask("POST", f"/runs/{run}/fork", "submitter", json={"generation": 0})
    assert forked.status_code == 201
    assert served.get(f"/runs/{forked.json()['run']}").json()["owner"] == "submitter"


def test_tokens_end_with_their_revocation_and_their_user(served: Served) -> None:
    made = served.ask("POST", "/users/viewer/tokens", json={"note": "laptop"}).json()
    served.tokens["laptop"] = made["token"]
    assert served.get("/me", "laptop").json()["name"] == "viewer"
    told = served.get("/users").text
    assert made["id"] in told
    assert made["token"] not in told
    assert served.ask("DELETE", f"/users/viewer/tokens/{made['id']}").status_code == 204
    assert served.get("/me", "laptop").status_code == 401
    assert served.get("/me", "viewer").status_code == 200
    assert served.ask("PATCH", "/users/viewer", json={"role": "submitter"}).status_code == 200
    assert served.get("/me", "viewer").json()["role"] == "submitter"
    assert served.ask("DELETE", "/users/viewer").status_code == 204
    assert served.get("/me", "viewer").status_code == 401
    assert served.ask("POST", "/users", json={"name": "viewer", "role": "viewer"}).status_code == 201
    assert served.get("/me", "viewer").status_code == 401  # the old token stays void


def test_an_admin_that_forge_did_not_record_lets_nobody_in(served: Served) -> None:
    """Two rows written to the database were an admin with a known token."""
    assert served.get("/users").status_code == 200
    store = served.home.open_store()
    last = store.read("users")[-1]
    added = last._replace(type="user_added", data='{"name":"mallory","role":"admin"}')
    token = {"id": "x", "name": "mallory", "hash": accounts.hashed("forge_known"), "note": ""}
    issued = last._replace(type="token_issued", data=json.dumps(token))
    for behind, row in enumerate((added, issued), start=1):
        row = row._replace(
            version=last.version + behind,
            schema=1,
            event_id=f"{behind}",
            key=f"{behind}",
            prev_hash=last.hash,
            hash="bogus",
        )
        columns = ", ".join(row._fields[1:])
        with store.database.appending() as cursor:
            marks = ", ".join("?" * (len(row) - 1))
            cursor.execute(f"INSERT INTO events ({columns}) VALUES ({marks})", tuple(row[1:]))
    store.close()
    served.tokens["mallory"] = "forge_known"
    for who in ("mallory", "admin", "viewer"):
        answer = served.get("/users", who)
        assert answer.status_code == 409
        assert f"stream users, event {last.version + 1}: it was changed" in answer.json()["detail"]


def test_no_secret_is_in_the_log(served: Served) -> None:
    store = served.home.open_store()
    said = "".join(row.data for row in store.iterate(accounts.STREAM))
    actors = [row.actor for row in store.iterate(accounts.STREAM)]
    store.close()
    assert actors
    assert accounts.hashed(served.tokens["admin"]) in said
    assert not any(token in said for token in served.tokens.values())


def test_the_last_admin_stays(tmp_path) -> None:
    store = open_store(tmp_path / "log.db")
    accounts.add(store, "ada", "admin")
    for change in (
        lambda: accounts.remove(store, "ada"),
        lambda: accounts.change_role(store, "ada", "viewer"),
    ):
        with pytest.raises(ConflictError, match="last admin"):
            change()
    accounts.add(store, "bob", "admin")
    accounts.remove(store, "ada")
    assert accounts.read(store).roles == {"bob": "admin"}
    with pytest.raises(ConflictError, match="there already"):
        accounts.add(store, "bob", "viewer")
    with pytest.raises(NotFoundError):
        accounts.issue(store, "ada")
    for name in ("", "a b", "x" * 65, "a/b"):
        with pytest.raises(ConfigError):
            accounts.add(store, name, "viewer")
    with pytest.raises(ConfigError, match="role"):
        accounts.add(store, "eve", "root")
    store.close()


def test_a_bucket_fills_at_its_rate() -> None:
    now = [0.0]
    buckets = Buckets(2.0, 3, lambda: now[0])
    assert [buckets.take("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("b") == 0.0
    now[0] = 0.5
    assert [buckets.take("a") for _ in range(2)] == [0.0, 0.5]


def test_too_many_requests_are_told_so(tmp_path) -> None:
    from fastapi.testclient import TestClient

    home = Home(tmp_path)
    store = home.open_store()
    accounts.add(store, "ada", "viewer")
    _, token = accounts.issue(store, "ada")
    store.close()
    app = create(home, Options((tmp_path,), rate=0.001, burst=3))
    with TestClient(app, "http://127.0.0.1") as client:
        head = {"Authorization": f"Bearer {token}"}
        codes = [client.get("/me", headers=head).status_code for _ in range(5)]
        assert codes == [200, 200, 200, 429, 429]
        late = client.get("/me", headers=head)
        assert int(late.headers["retry-after"]) > 100
        wrong = [
            client.get("/me", headers={"Authorization": "Bearer x"}).status_code for _ in range(25)
        ]
        assert wrong[:20] == [401] * 20
        assert 429 in wrong[20:]


def test_models_outside_of_the_roots_are_not_told_apart_from_missing_ones(tmp_path) -> None:
    inside, outside = tmp_path / "models", tmp_path / "secret"
    (inside / "code").mkdir(parents=True)
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    options = Options((inside,))
    assert options.place("code") == str(inside / "code")
    assert options.place(str(inside / "code")) == str(inside / "code")
    assert options.place("owner/name@main") == "owner/name@main"
    with pytest.raises(ConfigError, match="FORGE_API_HUB"):
        options.model("owner/name@main")
    assert Options((inside,), hub=True).model("owner/name@main") == "owner/name@main"
    told = set()
    for bad in (str(outside), str(tmp_path / "no"), "../secret", "link", "./link", "~/x", "/"):
        if bad == "link":
            continue  # read as the name of a model: it is resolved as one, and refused there
        with pytest.raises(ConfigError) as caught:
            options.place(bad)
        told.add(str(caught.value).replace(repr(bad), "X"))
    assert len(told) == 1


def test_a_link_in_a_folder_leads_out_of_no_root(tmp_path) -> None:
    """Its target would be read with the server's rights, and its text stand in a result."""
    folder = tmp_path / "models" / "code"
    folder.mkdir(parents=True)
    (tmp_path / "secret").write_text("password")
    (folder / "config.json").write_text("{}")
    (folder / "vocab.json").symlink_to(folder / "config.json")
    options = Options((tmp_path / "models",))
    assert options.place("code") == str(folder)
    (folder / "merges.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match=r"'merges\.txt' in 'code' is a link out of the folders"):
        options.place("code")
