"""What is refused at the door: hosts, tokens before bodies, media types, characters, unknown fields."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import BaseModel, ValidationError
from starlette.websockets import WebSocketDisconnect

from agent_forge.api.options import LOOPBACK, Options
from agent_forge.api.problems import problem_of
from agent_forge.api.schemas import bodies as schemas
from agent_forge.events import StoreUnavailableError
from agent_forge.runs.errors import ConfigError, ConflictError
from agent_forge.runs.home import Home
from agent_forge.worker.commands import accounts
from testing.worlds.fake_world import RUN
from tests.integration.api.conftest import Served

#: A terminal's clipboard, a new line, NUL, and text that is shown backwards.
STEERING = ("\x1b]52;c;eA==\x07", "a\x00b", "a\u202eb", "a\x9bb")


@pytest.mark.parametrize("bad", STEERING)
def test_text_that_steers_a_terminal_is_refused_by_the_name_of_its_field(
    shared: Served, bad: str
) -> None:
    """A NUL in a model's name broke the registry for good; the rest reached admins' terminals."""
    models = {"models": ["a", "b"]}
    for path, body, field in (
        ("/models", {"path": "a", "name": bad}, "name"),
        ("/models", {"path": "a", "metrics": {bad: 1}}, "metrics"),
        ("/models", {"path": bad}, "path"),
        ("/users/viewer/tokens", {"note": bad}, "note"),
        (f"/runs/{RUN}/pause", {"reason": bad}, "reason"),
        (f"/runs/{RUN}/priority", {"priority": 1, "reason": bad}, "reason"),
        (f"/runs/{RUN}/fork", {"generation": 1, "reason": bad}, "reason"),
        (f"/runs/{RUN}/fork", {"generation": 1, "settings": {"x": [bad]}}, "settings"),
        ("/runs", {**models, "labels": [bad]}, "labels"),
        ("/runs", {**models, "config": {bad: 1}}, "config"),
        ("/runs/check", {"models": ["a", bad]}, "models"),
        ("/users", {"name": bad, "role": "viewer"}, "name"),
    ):
        answer = shared.ask("POST", path, json=body)
        told = answer.json()
        assert answer.status_code == 422, (path, told)
        assert told["errors"][0]["field"].startswith(field), told
        assert not any(character in told["detail"] for character in "\x1b\x00\u202e\x9b")


#: Soft hyphen, space without width, mark of byte order, tag letter A, filler of Hangul, variation
#: selector, blank of braille.
UNSEEN = ("\xad", "\u200b", "\ufeff", "\U000e0041", "\u3164", "\ufe0f", "\u2800")


@pytest.mark.parametrize("bad", UNSEEN, ids=lambda c: f"U+{ord(c):04X}")
def test_a_new_name_has_no_character_that_does_not_show(shared: Served, bad: str) -> None:
    """Two names would look alike, and a language model would read what its user does not see."""
    for path, body, field in (
        ("/models", {"path": "a", "name": f"ti{bad}ny"}, "name"),
        ("/models", {"path": "a", "metrics": {f"ti{bad}ny": 1}}, "metrics"),
        ("/runs", {"models": ["a", "b"], "labels": [f"gp{bad}u"]}, "labels"),
        ("/runs", {"models": ["a", "b"], "name": f"ti{bad}ny"}, "name"),
        ("/users", {"name": f"ad{bad}a", "role": "viewer"}, "name"),
    ):
        answer = shared.ask("POST", path, json=body)
        assert answer.status_code == 422, (path, answer.text)
        assert answer.json()["errors"][0]["field"].startswith(field), answer.text
        assert bad not in answer.json()["detail"]


@pytest.mark.parametrize("bad", STEERING)
def test_an_address_with_such_characters_is_refused(shared: Served, bad: str) -> None:
    """With `%00` PostgreSQL answered 503."""
    for path, query, field in (
        ("/runs", {"q": bad}, "q"),
        ("/runs", {"owner": bad}, "owner"),
        ("/runs", {"label": bad}, "label"),
        ("/models", {"q": bad}, "q"),
        ("/phases/evomerge/status", {"run": bad}, "run"),
    ):
        answer = shared.get(path, params=query)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"] == field
    assert shared.ask("DELETE", "/models/0000", params={"reason": bad}).status_code == 422
    assert shared.get("/runs/" + "".join(f"%{b:02x}" for b in bad.encode())).status_code == 422


def test_every_text_of_every_body_is_plain() -> None:
    """A field that is added later is held to the same rule."""
    tried = 0
    for shape in _all_of(schemas._Body):
        for name, field in shape.model_fields.items():
            for given in ("a\x1bb", ["a\x1bb"], {"a\x1bb": 1}, {"a": "a\x1bb"}):
                body = {"models": [], "path": "a", "name": "a", "role": "viewer", "priority": 1}
                only = {key: body[key] for key in body if key in shape.model_fields}
                with pytest.raises(ValidationError):
                    shape.model_validate({**only, name: given})
                tried += 1
            assert field is not None
    assert tried > 60


def _all_of(base: type[BaseModel]) -> list[type[BaseModel]]:
    return [c for own in base.__subclasses__() for c in (own, *_all_of(own))]


def test_a_reason_in_several_lines_becomes_one(shared: Served) -> None:
    """People write lines; what is recorded and printed is one."""
    assert schemas.Reason(reason="one\r\ntwo\n\tthree").reason == "one two three"


def test_a_model_has_a_bounded_number_of_metrics(shared: Served) -> None:
    body = {"path": "a", "metrics": {f"m{n}": 1.0 for n in range(65)}}
    answer = shared.ask("POST", "/models", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "metrics")


def test_settings_are_nested_only_so_deep(shared: Served) -> None:
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    answer = shared.ask("POST", "/runs", json={"models": ["a", "b"], "config": {"x": deep}})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "config")


def test_the_token_is_looked_at_before_the_body(shared: Served) -> None:
    """Whoever has none made the server parse 781 kB of JSON each time, and it counted for no limit."""
    head = {"Content-Type": "application/json"}
    for body in ("{", "[" * 700_000, "{}"):
        assert shared.ask("POST", "/runs", None, content=body, headers=head).status_code == 401
    assert shared.ask("POST", "/nothing", None, content="{}", headers=head).status_code == 401
    assert shared.ask("POST", "/runs", "viewer", content="{", headers=head).status_code == 422


def test_broken_bodies_count_for_the_limit(tmp_path) -> None:
    """A user's broken requests are requests."""
    from agent_forge.api.app import create

    home = Home(tmp_path)
    store = home.open_store()
    accounts.add(store, "ada", "submitter")
    _, token = accounts.issue(store, "ada")
    store.close()
    head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    app = create(home, Options((tmp_path,), rate=0.001, burst=3))
    with TestClient(app, "http://127.0.0.1") as client:
        codes = [client.post("/runs", content="{", headers=head).status_code for _ in range(5)]
    assert codes == [422, 422, 422, 429, 429]


def test_a_body_says_that_it_is_json(shared: Served) -> None:
    """A form or a text is not guessed at."""
    for media in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = shared.ask("POST", f"/runs/{RUN}/pause", content="{}", headers={"Content-Type": media})
        assert (answer.status_code, answer.json()["title"]) == (415, "Unsupported Media Type")
    head = {"Content-Type": "application/json; charset=utf-8"}
    answer = shared.ask("POST", "/runs/none/pause", content="{}", headers=head)
    assert answer.status_code == 404


def test_fields_of_the_query_that_do_not_exist_are_refused(shared: Served) -> None:
    """A filter with a typing error would be ignored, and everything shown."""
    answer = shared.get("/runs", params={"state": "paused"})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "state")
    assert shared.get("/models", params={"kind": "base", "q": "x"}).status_code == 200
    assert shared.get(f"/runs/{RUN}", params={"at": 3}).status_code == 200
    assert shared.ask("POST", "/runs/none/pause", json={}, params={"x": 1}).status_code == 422


def test_problems_have_the_titles_of_http(shared: Served) -> None:
    """The words that people know, and that they find when they look them up."""
    for answer, title in (
        (shared.get("/me", None), "Unauthorized"),
        (shared.get("/users", "viewer"), "Forbidden"),
        (shared.get("/runs/none"), "Not Found"),
        (shared.get("/runs", params={"limit": 0}), "Unprocessable Content"),
        (shared.ask("POST", "/users", json={"name": "viewer", "role": "viewer"}), "Conflict"),
    ):
        assert answer.json()["title"] == title


def test_only_hosts_that_are_this_server_are_answered(shared: Served) -> None:
    """A foreign page could otherwise read answers under a name of its own (DNS rebinding)."""
    for path in ("/", "/health", "/openapi.json", "/me"):
        answer = shared.get(path, headers={"Host": "evil.example"})
        assert (answer.status_code, answer.json()["title"]) == (421, "Misdirected Request")
        assert "default-src" in answer.headers["content-security-policy"]
    for host in ("localhost", "localhost:8083", "127.0.0.1:9", "[::1]:8083", "LOCALHOST"):
        assert shared.get("/health", headers={"Host": host}).status_code == 200
    for host in (
        "127.0.0.1#evil",
        "127.0.0.1/evil.com",
        "127.0.0.1?x=evil.com",
        "127.0.0.1:18201, evil.com",
        "evil.com@127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:x",
        "[::1",
        "::1",
        "[127.0.0.1]evil",
        "",
    ):
        assert shared.get("/health", headers={"Host": host}).status_code == 421, host
    watching = shared.client.websocket_connect("/ws", headers={"Host": "evil.example"})
    with pytest.raises(WebSocketDisconnect):
        watching.__enter__()
    there = shared.get("/runs/", headers={"Host": "localhost"}, follow_redirects=False)
    assert there.status_code == 404
    assert "location" not in there.headers


def test_more_hosts_are_named_where_it_starts(monkeypatch, tmp_path) -> None:
    """A proxy's name, and any address where the server listens on all of them."""
    monkeypatch.setenv("FORGE_API_HOSTS", "Forge.example other.example")
    monkeypatch.setenv("FORGE_PROXY", "10.0.0.1")
    monkeypatch.chdir(tmp_path)
    options = Options.of_environment((), "192.168.1.5")
    assert options.proxies == ("10.0.0.1",)
    for host in (*LOOPBACK[:2], "[::1]", "forge.example:443", "192.168.1.5:8083"):
        assert options.answers_for(host)
    for host in ("", "evil.example", "forge.example.evil.example", "10.1.1.1", "[::2]", "["):
        assert not options.answers_for(host)
    everywhere = Options.of_environment((), "0.0.0.0")
    assert everywhere.answers_for("10.1.1.1:8083")
    assert not everywhere.answers_for("evil.example")


def test_an_error_of_the_server_is_dressed_and_logged_once(served: Served, capfd, caplog) -> None:
    """It had none of the headers, and two tracebacks."""

    def broken(*_: Any) -> None:
        raise RuntimeError("a secret of the inside")

    app: Any = served.client.app
    app.state.desk.name = broken
    answer = served.get(f"/runs/{RUN}")
    assert (answer.status_code, answer.json()["title"]) == (500, "Internal Server Error")
    assert "secret" not in answer.text
    for name in ("content-security-policy", "x-content-type-options", "referrer-policy"):
        assert name in answer.headers
    told = caplog.text + "".join(capfd.readouterr())
    assert told.count("Traceback") == 1


def test_a_database_that_is_away_is_not_described() -> None:
    """Viewers were told its scheme, user, host and name."""
    error = StoreUnavailableError("postgresql://forge:***@db.internal/forge", "refused")
    problem = problem_of(error)
    assert problem.status == 503
    assert "db.internal" not in json.dumps(problem.body)


def test_a_token_may_have_an_end(served: Served, monkeypatch) -> None:
    """One that is lost is void by itself; without days it has no end, as before."""
    made = served.ask("POST", "/users/viewer/tokens", json={"note": "ci", "days": 2}).json()
    served.tokens["ci"] = made["token"]
    assert served.get("/me", "ci").status_code == 200
    ends = {t["id"]: t["expires"] for u in served.get("/users").json()["users"] for t in u["tokens"]}
    assert ends.pop(made["id"]) > 0
    assert set(ends.values()) == {None}
    later = accounts.time.time() + 2 * 86_400 + 1
    monkeypatch.setattr(accounts.time, "time", lambda: later)
    assert served.get("/me", "ci").status_code == 401
    assert served.get("/me", "viewer").status_code == 200
    assert served.ask("POST", "/users/viewer/tokens", json={"days": 0}).status_code == 422


@pytest.mark.parametrize("name", ["\u0430dmin", "ad\u200bmin", "z\u00f6e", "a b", ""])
def test_names_that_look_like_others_are_refused(served: Served, name: str) -> None:
    """A Cyrillic letter made a second admin to the eye."""
    assert served.ask("POST", "/users", json={"name": name, "role": "viewer"}).status_code == 422
    store = served.home.open_store()
    with pytest.raises(ConfigError):
        accounts.add(store, name, "viewer")
    with pytest.raises(ConflictError, match="there already"):
        accounts.add(store, "Admin", "viewer")
    store.close()


def test_a_name_that_is_free_again_has_none_of_the_old_runs(served: Served) -> None:
    """The new user of a removed one's name could cancel the old one's runs."""
    run = served.forks["submitter"]
    assert served.ask("POST", f"/runs/{run}/pause", "submitter", json={}).status_code == 200
    assert served.ask("DELETE", "/users/submitter").status_code == 204
    new = {"name": "submitter", "role": "submitter"}
    assert served.ask("POST", "/users", json=new).status_code == 201
    made = served.ask("POST", "/users/submitter/tokens", json={}).json()
    served.tokens["new"] = made["token"]
    answer = served.ask("POST", f"/runs/{run}/resume", "new", json={})
    assert (answer.status_code, "earlier user" in answer.json()["detail"]) == (403, True)
    forked = served.ask("POST", f"/runs/{RUN}/fork", "new", json={"generation": 1}).json()["run"]
    assert served.ask("POST", f"/runs/{forked}/pause", "new", json={}).status_code == 200
    assert served.ask("POST", f"/runs/{run}/resume", "admin", json={}).status_code == 200


def test_data_with_a_domain_is_below_the_roots_too(tmp_path: Path) -> None:
    """DOMAIN=PATH would otherwise name any file of the server, and fetch from the Hub."""
    root = tmp_path / "root"
    (root / "texts" / "deep").mkdir(parents=True)
    (root / "a=b.jsonl").touch()
    options = Options((root,))
    assert options.data("law=texts") == f"law={root / 'texts'}"
    assert options.data(f"law={root / 'texts'}") == f"law={root / 'texts'}"
    assert options.data("a=b.jsonl") == str(root / "a=b.jsonl")
    for made_up in ("calls:100", "calls:100x3"):  # read from nowhere
        assert options.data(made_up) == made_up
    for outside in ("law=/etc/passwd", "law=/etc", "law=../root2", "law=~/x", "/etc/passwd"):
        with pytest.raises(ConfigError, match="in none of this server's folders"):
            options.data(outside)
    with pytest.raises(ConfigError, match="none of this server's folders"):
        options.data("law=nothing")
    with pytest.raises(ConfigError, match="fetches nothing from the Hub"):
        options.data("law=hub:owner/texts")
    assert Options((root,), hub=True).data("law=hub:owner/texts") == "law=hub:owner/texts"
    (root / "texts" / "deep" / "x.txt").symlink_to("/etc/passwd")
    with pytest.raises(ConfigError, match="link out of the folders"):
        options.data("law=texts")


@pytest.mark.parametrize(
    "text", ["hub:x/y", "LM-EVAL:/tmp/x.yaml", "=/etc/passwd", "x/y", "1=", "no such", "builtin:x"]
)
def test_data_under_no_root_is_looked_up_nowhere_else(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """It was looked up in the folder where the server was started, and the answer told which."""
    monkeypatch.chdir(tmp_path)
    words = f"{text!r} is in none of this server's folders. `GET /me` lists them."
    for kind in ("cognate", "bake", "evomerge"):
        answer = served.ask("POST", "/runs/check", json={"kind": kind, "data": [text]})
        assert (answer.status_code, answer.json()["detail"]) == (422, words)
    for hub in (False, True):
        with pytest.raises(ConfigError, match=re.escape(words)):
            Options((tmp_path,), hub=hub).data(text)
    assert Options((tmp_path,)).data("builtin:domains") == "builtin:domains"


def test_no_error_tells_where_the_server_s_home_is(served: Served) -> None:
    """A user names runs and roots; a path in the home is none of them."""
    home = served.home.folder
    detail = problem_of(ConflictError(f"{home}/models/x is there, and {home}-2.")).body["detail"]
    assert detail == f"$FORGE_HOME/models/x is there, and {home}-2."


def test_a_run_of_text_outside_of_the_roots_is_refused(served: Served) -> None:
    """By the route, for a kind that takes data with domains."""
    body = {"kind": "cognate", "data": ["law=/etc/passwd"], "config": {"preset": "mini"}}
    for path in ("/runs/check", "/runs", "/phases/cognate/start"):
        answer = served.ask("POST", path, json=body)
        assert answer.status_code == 422, answer.text
        assert "in none of this server's folders" in answer.json()["detail"]
