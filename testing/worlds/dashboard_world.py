"""Runs of every kind, written by the real engine with invented measurements, served by the real API.

Measurements are invented (`testing.worlds.fake_runs`), shapes are not: what the dashboard is shown here
is what the product writes. `python -m testing.worlds.dashboard_world 8090` serves it for looking at.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvicorn

from agent_forge.api.app import SITE, create
from agent_forge.api.options import Options
from agent_forge.events import EventStore, New
from agent_forge.evomerge.run import events as run_events
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.home import Home
from agent_forge.runs.streams import stream
from agent_forge.worker import append
from agent_forge.worker.commands import accounts, submit
from agent_forge.worker.commands.control import control
from agent_forge.worker.commands.fork import fork, plan
from agent_forge.worker.queue.device_table import DeviceTable
from agent_forge.worker.queue.leases import myself
from agent_forge.worker.queue.scheduler import Offer
from testing.models.toys import Toys
from testing.waiting import PATIENCE, wait_until
from testing.worlds import fake_runs, runs

__all__ = ["SITE", "Site", "record"]

DONE, FRONT = "20261121-done", "20261121-front"
FAILED, CANCELLED, PAUSED = "20261120-failed", "20261120-cancelled", "20261120-paused"
WAITING, TESTING = "20261121-waiting", "20261121-testing"
#: A finished run over real models, which is in the home before the others.
REAL = "r"
FORK_KEY = "20261121-shorter"
FORK = submit.keyed_name(FORK_KEY, "fork of grace")
LABEL = "big-gpu"
USERS = {"ada": "admin", "grace": "submitter", "linus": "viewer"}
EIGHT: dict[str, Any] = {"population_size": 8, "elite_size": 2, "generations": 4}
#: Runs in the list beside those above.
MORE = 5


@contextmanager
def environment(**settings: str) -> Iterator[Home]:
    """Yield an empty home in memory, which the environment names beside other settings."""
    folder = memory()
    settings |= {"FORGE_HOME": str(folder / "home")}
    before = {name: os.environ.get(name) for name in settings}
    os.environ |= settings
    yield Home(folder / "home")
    shutil.rmtree(folder)
    for name, value in before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def record(folder: Path) -> dict[str, str]:
    """Write all runs but `REAL`, and the users, into a home; return user → token."""
    home = Home(folder)
    store = home.open_store()
    _others(store)
    fake_runs.submit(store, FAILED, **EIGHT)
    _break(store, fake_runs.finish(store, FAILED, lambda s: s.generation == 1, varied=True))
    fake_runs.finish(store, FAILED, varied=True)
    fake_runs.submit(store, CANCELLED, "linus", ("demo",), **EIGHT)
    fake_runs.finish(store, CANCELLED, lambda s: s.generation == 2, varied=True)
    control(store, CANCELLED, run_events.Cancelled(reason="wrong data"), "ada")
    fake_runs.submit(store, PAUSED, "grace", strategy="cma-es", population_size=8, generations=4)
    fake_runs.finish(store, PAUSED, lambda s: s.generation == 2, varied=True)
    control(store, PAUSED, run_events.Paused(reason="the GPU is needed"), "grace")
    fake_runs.submit(store, DONE, "ada", ("demo",), **EIGHT)
    fake_runs.finish(store, DONE, varied=True)
    pareto = {"strategy": "nsga2", "objectives": ["perplexity", "accuracy"]}
    fake_runs.submit(store, FRONT, "grace", (), **pareto, population_size=8, generations=7)
    fake_runs.finish(store, FRONT, lambda s: (5, 5) in s.candidates, varied=True)
    fake_runs.submit(store, TESTING, "ada", (), **EIGHT)
    fake_runs.finish(store, TESTING, lambda s: s.converged is not None, varied=True)
    branch = plan(store, DONE, None, 2, {"generations": 3})
    fork(store, branch, by="grace", reason="fewer generations", key=FORK_KEY)
    fake_runs.finish(store, FORK, varied=True)
    fake_runs.submit(store, WAITING, "ada", (LABEL,), **EIGHT)
    tokens = {}
    for name, role in USERS.items():
        accounts.add(store, name, role)
        tokens[name] = accounts.issue(store, name, "laptop")[1]
    append.project(store)
    store.close()
    return tokens


def memory() -> Path:
    """Make a folder in memory if the machine has /dev/shm: thousands of appends are synced."""
    shared = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="forge-world-", dir=shared if shared.is_dir() else None))


def _others(store: EventStore) -> None:
    for number in range(MORE):
        run = f"202611{18 - number // 5:02d}-{(number * 7919 + 4099) % 65536:04x}00"
        strategy = ("elite-loser", "tournament", "cma-es")[number % 3]
        small = {"generations": 1 + number % 3, "seed": number, "strategy": strategy}
        owner = list(USERS)[number % 3]
        fake_runs.submit(store, run, owner, ("nightly",) if number % 5 == 0 else (), **small)
        fake_runs.finish(store, run, varied=True)


def _break(store: EventStore, state: RunState) -> None:
    """Record that all attempts of a task have failed."""
    for attempt in (1, 2, 3):
        told = run_events.TaskFailed(
            task=f"build/{state.generation}/1",
            attempt=attempt,
            error="OutOfMemoryError: the device has 2.1 GiB left",
        )
        new = New(told, f"{state.run}/build/{state.generation}/1/failed/{attempt}")
        store.append(stream("evomerge", state.run), store.version(stream("evomerge", state.run)), [new])


class Site:
    """The real server over a home, in a thread; it can go away and come back at the same address."""

    def __init__(
        self, folder: Path, tokens: dict[str, str], roots: tuple[Path, ...] = (), port: int = 0
    ) -> None:
        self.home, self.tokens = Home(folder), tokens
        os.environ["FORGE_HOME"] = str(folder)  # layers are worked out by a process of its own
        self.store = self.home.open_store()
        self._options = Options(roots or (folder,), rate=1e5, burst=100_000)
        with socket.socket() as free:
            free.bind(("127.0.0.1", port))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        """Serve, and wait until it answers."""
        config = uvicorn.Config(
            create(self.home, self._options),
            host="127.0.0.1",
            port=self.port,
            log_level="error",
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        wait_until(lambda: self._server.started or not self._thread.is_alive(), "the server comes up")
        assert self._thread.is_alive(), "the server did not come up"

    def stop(self) -> None:
        """Stop the server."""
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        self.store.close()

    def get(self, path: str, who: str = "ada", **query: object) -> Any:
        """Return an answer of the API."""
        head = {"Authorization": f"Bearer {self.tokens[who]}"}
        # Without `verify`, because the world's certificates take long to read.
        how: Any = {"params": query, "headers": head, "verify": False, "timeout": PATIENCE}
        answer = httpx2.get(f"{self.url}/{path}", **how)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def places(self, run: str) -> int:
        """Return the number of the run's events."""
        return self.get(f"runs/{run}")["places"]

    def advance(self, run: str, by: int = 1) -> None:
        """Append the run's next events, at least `by`."""
        wanted = self.places(run) + by
        fake_runs.finish(self.store, run, lambda state: state.place >= wanted, varied=True)

    def ends(self, run: str) -> list[int]:
        """Return the places at which the run's generations end."""
        events = self.get(f"runs/{run}/events", limit=1000, data=False)["events"]
        found = []
        for event, after in zip(events, [*events[1:], {"type": ""}], strict=True):
            closing = ("diversity_measured", "generation_completed", "champion_changed", "reseeded")
            if event["type"] in closing[1:] and after["type"] not in (*closing[1:], "converged"):
                found.append(event["place"])
        return found

    def worker(
        self,
        name: str = "host/cpu0",
        run: str | None = None,
        task: str | None = None,
        labels: tuple[str, ...] = (),
    ) -> Callable[[], None]:
        """Connect a worker, busy if a task is given; return a function that disconnects it."""
        roster, owner = DeviceTable(self.store.database), myself(name)
        name = roster.enter(name, owner, "cpu")
        profile = "x|1|x|x|x|x"
        offer = Offer(frozenset({"device:cpu", *labels}), 8 << 30, profile, False)
        roster.offers(name, owner, offer)
        roster.say(name, owner, "busy" if task else "idle", run=run, task=task)
        return lambda: roster.leave(name, owner)


if __name__ == "__main__":
    from testing.models import toy_models

    folder = memory()
    base, sources = toy_models.family(folder / "models")
    given = Toys(base, tuple(sources), toy_models.data(folder / "data"))
    runs.submit(Home(folder / "home"), given, REAL)
    runs.finish(Home(folder / "home"), REAL)
    issued = record(folder / "home")
    site = Site(folder / "home", issued, (folder,), int(sys.argv[1]) if len(sys.argv) > 1 else 8090)
    site.worker(run=FRONT, task=site.get(f"runs/{FRONT}")["pending"][0])
    sys.stdout.write(f"{site.url}/#token={issued['ada']}\n")
    sys.stdout.flush()
    threading.Event().wait()
