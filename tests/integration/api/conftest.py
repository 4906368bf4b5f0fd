"""A server over a log with a finished run, one under way, a fork, and a user of every role."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from agent_forge.api.app import create
from agent_forge.api.options import LOOPBACK, Options
from agent_forge.evomerge.run import events
from agent_forge.runs.home import Home
from agent_forge.worker import append
from agent_forge.worker.commands import accounts
from agent_forge.worker.commands.control import control
from agent_forge.worker.commands.fork import fork, plan
from testing.worlds import fake_runs
from testing.worlds.fake_world import RUN

ROLES = ("viewer", "submitter", "admin")


@dataclass
class Served:
    """A server in this process, and everybody's tokens."""

    client: TestClient
    home: Home
    #: Role or name → token.
    tokens: dict[str, str]
    #: A run forked by the user of each role.
    forks: dict[str, str]

    def ask(self, method: str, path: str, who: str | None = "admin", **more):
        """A request as somebody."""
        headers = dict(more.pop("headers", {}))
        if who is not None:
            headers["Authorization"] = f"Bearer {self.tokens[who]}"
        return self.client.request(method, path, headers=headers, **more)

    def get(self, path: str, who: str | None = "admin", **more):
        """GET as somebody."""
        return self.ask("GET", path, who, **more)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str], dict[str, str]]:
    """A home folder, tokens, and each user's fork."""
    folder = tmp_path_factory.mktemp("served")
    store = Home(folder).open_store()
    fake_runs.whole(store)
    fake_runs.submit(store, "half")
    fake_runs.finish(store, "half", lambda state: state.generation == 1)
    control(store, "half", events.Paused(reason="lunch"))
    tokens, forks = {}, {}
    for role in ROLES:
        accounts.add(store, role, role)
        tokens[role] = accounts.issue(store, role)[1]
        forks[role] = fork(store, plan(store, RUN, None, 1, {"generations": 3}), by=role)
    append.project(store)
    store.close()
    return folder, tokens, forks


Recorded = tuple[Path, dict[str, str], dict[str, str]]


def _serve(recorded: Recorded, folder: Path, wrong: int = 20) -> Iterator[Served]:
    home = Home(folder / "home")
    shutil.copytree(recorded[0], home.folder)
    roots = folder / "models"
    roots.mkdir()
    hosts = (*LOOPBACK, "testserver")
    options = Options((roots,), rate=1e5, burst=100_000, wrong_burst=wrong, hosts=hosts)
    app = create(home, options)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield Served(client, home, dict(recorded[1]), dict(recorded[2]))


@pytest.fixture
def served(recorded: Recorded, tmp_path: Path) -> Iterator[Served]:
    """The server over a copy of it."""
    yield from _serve(recorded, tmp_path)


@pytest.fixture(scope="module")
def shared(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for many tests, who do not mind what the others asked."""
    yield from _serve(recorded, tmp_path_factory.mktemp("shared"), wrong=10_000)
