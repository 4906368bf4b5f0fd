"""Real servers that tests start by themselves, on sockets and folders of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from agent_forge.worker.devices import local_servers


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve HTTP on a free port of the loopback address; yield the URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def open_folder() -> Iterator[Path]:
    """Yield a folder that other users may enter, and remove it afterwards.

    It is not below pytest's own folder, which every new session of pytest closes to other users: the
    server is one.
    """
    place = os.environ.get("PYTEST_DEBUG_TEMPROOT")
    folder = Path(tempfile.mkdtemp(prefix="forge-postgres-", dir=place))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Postgres(local_servers.LocalPostgres):
    """A PostgreSQL server from a wheel; `kill` and `start` as often as wanted."""

    def new_database(self) -> str:
        """Create an empty database; return its address."""
        import psycopg

        name = f"t{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # pyright: ignore[reportArgumentType]
        return self.address(name)

    def kill(self) -> None:
        """Kill the server and its processes with SIGKILL, and wait until all of them are gone.

        A process that still holds the shared memory keeps the next server from starting.
        """
        pid = self._server.get_pid()
        os.kill(pid, signal.SIGSTOP)  # it starts no further process from here on
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=True
        ).stdout.split()
        processes = [pid, *map(int, children)]
        for process in processes:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        while any(map(_runs, processes)):
            time.sleep(0.01)

    def start(self) -> None:
        """Start it again after a kill: it recovers from its log."""
        for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):  # they name a dead process
            (self._server.pgdata / name).unlink(missing_ok=True)
        self._server.ensure_postgres_running()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
