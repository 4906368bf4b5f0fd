"""`forge users`, `models`, `layers`, `serve`: what a person types and sees."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from agent_forge.runs.home import Home
from testing.models.toys import Toys
from testing.worlds import runs
from tests.integration.cli.test_forge import call, fails


def test_users_are_added_changed_and_removed(tmp_path: Path) -> None:
    assert "forge users add" in call(tmp_path, "users", "list").stderr
    added = call(tmp_path, "users", "add", "ada", "--role", "admin")
    token = added.stdout.strip()
    assert token.startswith("forge_")
    assert token not in added.stderr
    made = json.loads(call(tmp_path, "users", "token", "ada", "--note", "laptop", "--json").stdout)
    listed = call(tmp_path, "users", "list")
    assert made["id"] in listed.stdout
    assert made["token"] not in listed.stdout
    assert "last admin" in fails(tmp_path, 6, "users", "remove", "ada")
    assert "last admin" in fails(tmp_path, 6, "users", "role", "ada", "viewer")
    call(tmp_path, "users", "add", "bob")
    assert "there already" in fails(tmp_path, 6, "users", "add", "bob")
    assert "no token" in fails(tmp_path, 5, "users", "revoke", "bob", made["id"])
    call(tmp_path, "users", "revoke", "ada", made["id"])
    call(tmp_path, "users", "role", "bob", "viewer")
    rows = json.loads(call(tmp_path, "users", "list", "--json").stdout)
    assert [(r["name"], r["role"], len(r["tokens"])) for r in rows] == [
        ("ada", "admin", 1),
        ("bob", "viewer", 1),
    ]
    call(tmp_path, "users", "remove", "bob")
    assert "not known" in fails(tmp_path, 5, "users", "token", "bob")


def test_models_are_registered_shown_and_removed(tmp_path: Path, toys: Toys) -> None:
    assert "no models yet" in call(tmp_path, "models", "list").stderr
    words = ["models", "register", str(toys.base), "--kind", "base", "--json"]
    id_ = json.loads(call(tmp_path, *words).stdout)["id"]
    call(tmp_path, "models", "register", str(toys.sources[0]), "--from", id_)
    assert id_ in call(tmp_path, "models", "list", "--kind", "base").stdout
    shown = json.loads(call(tmp_path, "models", "show", toys.sources[0].name, "--json").stdout)
    assert shown["lineage"] == [id_]
    assert "lineage" in call(tmp_path, "models", "show", toys.sources[0].name).stdout
    call(tmp_path, "models", "rm", id_, "--reason", "a test")
    assert "not known" in fails(tmp_path, 5, "models", "show", id_)
    assert "does not exist" in fails(tmp_path, 2, "models", "register", str(tmp_path / "none"))


@pytest.mark.slow
def test_layers_say_whose_they_are(tmp_path: Path, toys: Toys) -> None:
    home = Home(tmp_path / "home")
    run = runs.submit(home, toys, generations=0)
    assert "no champion yet" in fails(home.folder, 5, "layers", run)
    runs.finish(home, run)
    found = json.loads(call(home.folder, "layers", run, "--json").stdout)
    assert found["sources"] == [s.name for s in toys.sources]
    told = call(home.folder, "layers", run).stdout
    assert all(row["layer"] in told for row in found["rows"])
    source = json.loads(call(home.folder, "layers", run, toys_id(home, run), "--json").stdout)
    block = next(row for row in source["rows"] if row["layer"] == "block 0")
    assert block["coefficients"] == pytest.approx([1.0, 0.0, 0.0], abs=1e-6)
    assert block["explained"] == pytest.approx(1.0)


def toys_id(home: Home, run: str) -> str:
    """The recipe id of the first source."""
    from agent_forge.runs.history import repository

    store = home.open_store()
    started = repository.load(store, run).started
    store.close()
    assert started
    return started.sources[0].recipe_id


def test_a_port_that_is_taken_is_said_before_anything_is_made(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        message = fails(tmp_path / "home", 3, "serve", "--port", port, "--models", str(tmp_path))
        assert "cannot be listened on" in message
        assert not (tmp_path / "home").exists()
        message = fails(tmp_path / "up", 3, "up", "--port", port)
        assert "Name another --port" in message
        assert "up. Ctrl-C" not in message
        assert not (tmp_path / "up").exists()
    assert not (tmp_path / "home").exists()
    message = fails(tmp_path / "home", 2, "serve", "--models", str(tmp_path / "none"))
    assert "no folder" in message
