"""A cluster of real processes: workers on a log and a Redis, to be hurt and to be waited for."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.history.repository import full_name, load
from agent_forge.runs.home import Home
from agent_forge.worker.devices.local_servers import Redis
from agent_forge.worker.queue.device_table import Device, DeviceTable
from testing.waiting import PATIENCE, wait_until
from testing.worlds.runs import REPOSITORY

FORGE = (sys.executable, "-c", "from agent_forge.cli.main import main; main()")
#: Seconds that a lease lasts in a test that waits for its end. In others it lasts as long as by
#: default: no machine is too busy for a heartbeat then.
LEASE = 3.0
#: Options of a worker on a machine that is taken away with a notice.
DRAINED = ("--drain-on", "SIGTERM", "--notice", "5")


@dataclass
class Cluster:
    """A folder, a Redis, perhaps a PostgreSQL, and workers."""

    folder: Path
    url: str | None = None
    lease: float = 60.0
    env: dict[str, str] = field(default_factory=dict)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.redis = Redis(self.folder / "redis")

    @property
    def home(self) -> Home:
        """The home folder, which has the log."""
        return Home(self.folder / "home", self.url)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the cluster's processes."""
        mine = {
            "FORGE_HOME": str(self.folder / "home"),
            "FORGE_BROKER_URL": self.redis.url,
            "FORGE_LEASE_SECONDS": str(self.lease),
            "OMP_WAIT_POLICY": "PASSIVE",
            "FORGE_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
            "HF_HUB_OFFLINE": "1",
        }
        if self.url:
            mine["FORGE_DATABASE_URL"] = self.url
        return {**os.environ, **mine, **self.env}

    def worker(self, *options: str, **env: str) -> subprocess.Popen[bytes]:
        """Start `forge worker`."""
        log = (self.folder / f"worker-{len(self.workers)}.log").open("ab")
        process = subprocess.Popen(
            [*FORGE, "worker", "--device", "cpu", *options],
            cwd=REPOSITORY,
            env={**self.environment, **env},
            stderr=log,
            stdout=log,
            start_new_session=True,
        )
        log.close()
        self.workers.append(process)
        return process

    def preempt(self, rng: random.Random) -> None:
        """Take the machine of some worker away, with or without a notice; start another worker."""
        process = self.workers.pop(rng.randrange(len(self.workers)))
        if rng.random() < 0.5:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) in (0, -signal.SIGTERM), self.logs()  # it was still starting
        else:
            kill(process)
        self.worker(*DRAINED)

    def held(self, point: str) -> dict[str, str]:
        """Return the environment of a worker whose tasks wait at a failpoint until `release`."""
        self._hold.touch()
        return {"FORGE_FAILPOINTS": f"hold:{self._hold}:{point}"}

    def release(self) -> None:
        """Let tasks that are held go on."""
        self._hold.unlink()

    @property
    def _hold(self) -> Path:
        return self.folder / "hold"

    def forge(self, *words: str, code: int = 0) -> str:
        """Run `forge` with these words; return its output. The exit code must be `code`."""
        done = subprocess.run(
            [*FORGE, *words], cwd=REPOSITORY, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    def state(self, run: str = "r") -> RunState:
        """Return the state of a run, folded from the log."""
        with closing(self.home.open_store()) as store:
            return load(store, run) if store.version(f"evomerge/{run}") else RunState()

    def devices(self) -> list[Device]:
        """Return the devices in the table of devices."""
        with closing(self.home.open_store()) as store:
            return DeviceTable(store.database).devices()

    def events(self, run: str = "r") -> list[Any]:
        """Return the rows of a run."""
        with closing(self.home.open_store()) as store:
            return store.read(f"evomerge/{full_name(store, run)}")

    def wait(self, condition: Callable[[], Any], seconds: float = PATIENCE, pause: float = 0.02) -> Any:
        """Wait until `condition()` is true; return its value."""
        return wait_until(condition, self.logs, seconds, pause)

    def finish(self, run: str = "r", seconds: float = PATIENCE, pause: float = 0.2) -> RunState:
        """Wait for a run's end, and look seldom: looking takes time, too."""
        return self.wait(lambda: (state := self.state(run)).ended and state, seconds, pause)

    def logs(self) -> str:
        """Return the ends of the workers' logs."""
        files = sorted(self.folder.glob("worker-*.log"))
        return "\n".join(f"{f.name}:\n{f.read_text()[-2500:]}" for f in files)

    def close(self) -> None:
        """Kill the workers and stop Redis."""
        for process in self.workers:
            kill(process)
        self.redis.stop()


def children(process: subprocess.Popen[bytes]) -> list[int]:
    """Return the pids of the processes that a worker has started."""
    told = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True
    )
    return [int(word) for word in told.stdout.split()]


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker with SIGKILL, and not its children: they notice by themselves."""
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait()
