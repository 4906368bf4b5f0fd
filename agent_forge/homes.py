"""The place that runs are kept in, from Python: `open` and `sessions`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent_forge.registry import ModelRegistry
from runs.home import Home
from runs.lists.sessions import Session


def open(folder: str | Path | None = None, database: str | None = None) -> Home:
    """Open the home in a folder, or that of the environment; return it for `home=` of other calls.

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

    A session groups the models that a script of your own makes; `ModelRegistry` begins one.
    """
    return ModelRegistry(home).sessions()
