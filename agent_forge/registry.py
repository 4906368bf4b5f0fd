"""`open` (a home folder), `ModelRegistry` and `sessions`: thin calls over the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_forge.events import EventStore
from agent_forge.runs.home import Home
from agent_forge.runs.lists import model_registry
from agent_forge.runs.lists import sessions as session_list
from agent_forge.runs.lists.sessions import Session
from agent_forge.worker.commands import model_registry as commands
from agent_forge.worker.commands import sessions as session_commands


class ModelRegistry:
    """Registry of a home's models and sessions. Models that runs make are registered by their runs.

        registry = forge.ModelRegistry()
        registry.create_session("session_001", {"base": "models/base"})
        registry.register_model("models/base", kind="base", session="session_001")
        registry.update_session_progress("session_001", "phase1", 25.0)
        print([model["name"] for model in registry.models()])

    A session groups the models of one script and shows the script's progress.
    """

    def __init__(self, home: Home | str | Path | None = None) -> None:
        """Use the home folder `home`, by default that of the environment."""
        self._home = Home.at(home)

    @contextmanager
    def _store(self) -> Iterator[EventStore]:
        with closing(self._home.open_store()) as store:
            yield store

    # ---- sessions ------------------------------------------------------------------------------

    def create_session(self, name: str, config: Mapping[str, object] | None = None) -> Session:
        """Begin a session, or find the one of this name and config; return it.

        Raises ConfigError, and ConflictError if a session of this name has another config.
        """
        with self._store() as store:
            return session_commands.create(store, name, config or {})

    def update_session_progress(self, name: str, phase: str, percent: float) -> Session:
        """Record a phase's progress, 0-100; return the session. Raises ConfigError, NotFoundError."""
        with self._store() as store:
            return session_commands.progress(store, name, phase, percent)

    def session(self, name: str) -> Session:
        """Return the session of a name: progress, models, config. Raises NotFoundError."""
        with self._store() as store:
            return session_list.found(store, name)

    def sessions(self) -> list[Session]:
        """Return all sessions, the newest first."""
        with self._store() as store:
            return [*session_list.every(store).values()][::-1]

    # ---- models --------------------------------------------------------------------------------

    def register_model(
        self,
        folder: str | Path,
        name: str | None = None,
        kind: model_registry.Kind = "specialist",
        *,
        session: str | None = None,
        metrics: Mapping[str, float] | None = None,
        lineage: Sequence[str] = (),
    ) -> str:
        """Hash a model folder and record it; return the model's id.

        `lineage` has ids or names of the models that it was made from. Raises SourceError if the folder
        is not a model, NotFoundError if a parent or the session is not known.
        """
        with self._store() as store:
            if session is not None:
                session_list.found(store, session)
            id_ = commands.register(store, Path(folder), name, kind, metrics, lineage)
            if session is not None:
                session_commands.add_model(store, session, id_)
            return id_

    def model(self, name: str) -> dict[str, Any]:
        """Return a model's registry entry by id, the beginning of an id, or name.

        Raises NotFoundError, and AmbiguousError if several models match.
        """
        with self._store() as store:
            return model_registry.find(store, name)

    def models(self, kind: str | None = None, query: str = "") -> list[dict[str, Any]]:
        """Return the newest thousand entries of a kind whose name, id, run or path contains `query`."""
        with self._store() as store:
            return model_registry.listed(store, kind, query)[0]


def open(folder: str | Path | None = None, database: str | None = None) -> Home:
    """Open the home in a folder, or the environment's; return it, for `home=` of other calls.

        home = forge.open("my-home")
        registry = forge.ModelRegistry(home)

    A home has the log and a cache of weights; it is made if it is missing. `database` is the log's
    address, `sqlite:///FILE` or `postgresql://USER:PASSWORD@HOST/NAME`; by default it is the file
    `forge.db` of the folder. Without a folder the environment names both, as for the commands
    (`FORGE_HOME`, `FORGE_DATABASE_URL`). Raises UnavailableError, ConfigError.
    """
    home = Home.at(folder)
    if database is not None:
        home = replace(home, url=database)
    home.open_store().close()
    return home


def sessions(home: Home | str | Path | None = None) -> list[Session]:
    """Return all sessions of a home, the newest first.

        for session in forge.sessions():
            print(session.name, session.progress, session.models)

    A session groups the models that your script makes; `ModelRegistry` begins one.
    """
    return ModelRegistry(home).sessions()
