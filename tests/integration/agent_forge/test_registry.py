"""Sessions and models from Python: the documents' calls, over the log."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

import agent_forge as forge
from agent_forge import ModelRegistry
from agent_forge.cli.main import forge as command
from agent_forge.events import EventStore
from agent_forge.runs.errors import ConfigError, ConflictError, NotFoundError, SourceError
from agent_forge.runs.home import Home
from agent_forge.runs.lists import sessions
from agent_forge.runs.lists.sessions import Session
from agent_forge.worker.commands import sessions as session_commands
from testing.models.toys import Toys


@pytest.fixture
def registry(tmp_path: Path) -> ModelRegistry:
    return ModelRegistry(tmp_path / "home")


def test_the_documents_calls_are_events_of_the_log(
    registry: ModelRegistry, toys: Toys, tmp_path: Path
) -> None:
    registry.create_session("session_001", {"base": "models/base", "seed": 3})
    base = registry.register_model(toys.base, kind="base", session="session_001")
    child = registry.register_model(
        toys.sources[0], "ours", session="session_001", metrics={"bits": 1.5}, lineage=[base]
    )
    registry.update_session_progress("session_001", "phase1", 25.0)
    registry.update_session_progress("session_001", "phase2", 10)
    found = registry.update_session_progress("session_001", "phase1", 50.0)
    assert found == registry.session("session_001") == registry.sessions()[0]
    assert (found.progress, found.models) == ({"phase1": 50.0, "phase2": 10.0}, [base, child])
    assert found.updated_at > found.created_at
    assert registry.model("ours")["lineage"] == [base]
    assert [m["id"] for m in registry.models("base")] == [base]
    env = {"FORGE_HOME": str(tmp_path / "home")}
    verified = CliRunner().invoke(command, ["verify", "sessions"], env=env)
    assert verified.exit_code == 0, verified.output


def test_a_script_that_is_started_again_finds_its_session(registry: ModelRegistry) -> None:
    first = registry.create_session("s", {"a": 1})
    registry.update_session_progress("s", "p", 5)
    assert registry.create_session("s", {"a": 1}).progress == {"p": 5.0}
    assert len(registry.sessions()) == 1
    with pytest.raises(ConflictError, match="session s exists already, with another config"):
        registry.create_session("s", {"a": 2})
    assert first.config == {"a": 1}


def test_of_two_that_begin_a_session_at_once_the_first_is_recorded(
    registry: ModelRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second has looked before the first one was recorded."""
    registry.create_session("s", {"a": 1})
    real, looked = sessions.every, []

    def every(store: EventStore) -> dict[str, Session]:
        looked.append(store)
        return real(store) if len(looked) > 1 else {}

    monkeypatch.setattr(sessions, "every", every)
    with closing(Home(tmp_path / "home").open_store()) as store:
        with pytest.raises(ConflictError):
            session_commands.create(store, "s", {"a": 2})
        assert store.version(sessions.STREAM) == 1
    assert registry.session("s").config == {"a": 1}


def test_bad_input_is_named_and_records_nothing(
    registry: ModelRegistry, toys: Toys, tmp_path: Path
) -> None:
    with pytest.raises(NotFoundError, match=r"session 'none' is not known\. There are: none\."):
        registry.update_session_progress("none", "p", 1)
    with pytest.raises(NotFoundError, match="session 'none'"):
        registry.register_model(toys.base, session="none")
    assert registry.models() == []
    registry.create_session("s")
    for percent in (-1, 100.5, float("nan")):
        with pytest.raises(ConfigError, match="0 to 100 percent"):
            registry.update_session_progress("s", "p", percent)
    for name in ("", "x" * 201, "a\nb"):
        with pytest.raises(ConfigError):
            registry.create_session(name)
    with pytest.raises(ConfigError, match="its config is no plain data"):
        registry.create_session("t", {"a": object()})
    with pytest.raises(SourceError):
        registry.register_model(tmp_path / "nothing", session="s")
    assert registry.session("s").progress == {}
    assert "ModelRegistry" in forge.__all__
