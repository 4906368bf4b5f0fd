"""Text of others at a terminal: it steers nothing there, and nothing like it is accepted any more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent_forge.cli.main import forge
from agent_forge.events import EventStore, New
from agent_forge.evomerge.run import events
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.home import Home
from agent_forge.runs.lists import model_registry as reports_model_registry
from agent_forge.runs.streams import stream
from agent_forge.worker.commands import accounts, user_limits
from agent_forge.worker.commands import model_registry as commands_model_registry
from agent_forge.worker.commands.control import control
from testing.worlds import fake_runs

#: Writes the clipboard, ends its sequence, turns the text around, begins a sequence in one byte.
EVIL = "\x1b]52;c;aGk=\x07\u202etxt\x9b31m"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A log of before the text was checked: everything in it has such text."""
    home = Home(tmp_path)
    store = home.open_store()
    fake_runs.submit(store, "r")
    store.append(stream("evomerge", "r"), 1, [New(events.Paused(reason=EVIL), "r/paused/1")])
    accounts.add(store, "ada", "admin")
    token = accounts.TokenIssued(id="t", name="ada", hash="0" * 64, note=EVIL)
    store.append("users", 1, [New(token, "users/1")])
    model = reports_model_registry.ModelRegistered(
        name=EVIL, kind="base", path=EVIL, digest="0" * 64, bytes=1, parameters=1, metrics={EVIL: 1}
    )
    store.append("models", 0, [New(model, "models/1")])
    changed = user_limits.LimitsChanged(owner=EVIL, weight=2)
    store.append("queue", 0, [New(changed, "queue/1")])
    store.close()
    return home


def call(home: Home, *words: str) -> Result:
    return CliRunner(env={"FORGE_HOME": str(home.folder), "FORGE_DATABASE_URL": ""}).invoke(
        forge, list(words)
    )


COMMANDS = ["events r", "users list", "models list", f"models show {'0' * 16}", "limits", "runs"]


@pytest.mark.parametrize("command", COMMANDS)
def test_text_of_others_is_escaped_where_it_is_printed(home: Home, command: str) -> None:
    """A submitter wrote into the clipboard of the admin who listed events, models or users."""
    told = call(home, *command.split())
    assert told.exit_code == 0
    assert told.stdout
    assert not set(EVIL) - set("]52;c;aGk=txt31m") & set(told.output)
    listed = call(home, *command.split(), "--json")
    assert not set(EVIL) - set("]52;c;aGk=txt31m") & set(listed.output)


def test_json_says_the_same_text(home: Home) -> None:
    """Escaped as JSON does it, so that a program reads what was recorded."""
    lines = call(home, "events", "r", "--json").stdout.splitlines()
    assert json.loads(lines[1])["data"]["reason"] == EVIL
    assert json.loads(call(home, "models", "list", "--json").stdout)[0]["name"] == EVIL


def _models(store: EventStore, folder: Path) -> None:
    commands_model_registry.register(store, folder, name=EVIL)


ACCEPTED: list[Callable[[EventStore, Path], object]] = [
    lambda store, _: control(store, "r", events.Resumed(reason=EVIL)),
    lambda store, _: accounts.issue(store, "ada", EVIL),
    lambda store, _: user_limits.change(store, EVIL, 2),
    _models,
    lambda store, folder: commands_model_registry.register(store, folder, "m", metrics={EVIL: 1.0}),
    lambda store, _: commands_model_registry.remove(store, "0" * 16, EVIL),
]


@pytest.mark.parametrize("ask", ACCEPTED, ids=range(len(ACCEPTED)))
def test_such_text_is_refused_where_it_is_accepted(home: Home, ask, tmp_path: Path) -> None:
    store = home.open_store()
    before = store.end()
    with pytest.raises(ConfigError, match=r"holds the character U\+001B"):
        ask(store, tmp_path)
    assert store.end() == before
    store.close()


def test_the_user_of_the_environment_is_plain_text_too(monkeypatch) -> None:
    from agent_forge.worker.append import actor

    monkeypatch.setenv("FORGE_USER", EVIL)
    with pytest.raises(ConfigError, match="FORGE_USER"):
        actor()
