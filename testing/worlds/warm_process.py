"""Warm processes: forked from a template that has imported torch, so that a kill costs no import.

A process that is killed at a failpoint used to begin with two to five seconds of imports. The
template imports once, never computes (so no library has started a thread that a fork would lose),
and forks for each request. What is forked is a process of its own in all that the kill tests look
at: own memory, own files, own signals. Imports themselves are not under test there; the cluster's
tests start real workers.

    Template()          the process that forks; one for each test session
    Template.start()    a forked process that carries a run on, with the face of `subprocess.Popen`

`python -m testing.worlds.warm_process FD` is the template; FD is its end of a socket pair.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from agent_forge.runs.home import Home
from testing.waiting import PATIENCE

REPOSITORY = Path(__file__).resolve().parents[2]


class WarmProcess:
    """A forked process that carries a run on; its output is the lineage digest."""

    def __init__(self, line: socket.socket, out: int, err: int) -> None:
        self._line, self._outputs = line, (out, err)
        self.pid = int(line.recv(32))
        self.returncode: int | None = None

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end, once; return stdout and stderr.

        Raise TimeoutError if it has not ended after `timeout` seconds.
        """
        self._line.settimeout(timeout)
        self.returncode = int(self._line.recv(32))
        self._line.close()
        told = []
        for file in self._outputs:
            with open(file, "rb") as opened:
                opened.seek(0)
                told.append(opened.read().decode())
        return told[0], told[1]

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Template:
    """A process that has imported what a run needs, and forks."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "testing.worlds.warm_process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=REPOSITORY,
                # numpy's BLAS would start its threads when it is imported; torch starts none before use
                env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_NUM_THREADS": "1"},
            )

    def start(self, home: Home, run: str = "r", failpoints: str = "") -> WarmProcess:
        """Fork a process that carries `run` on, with this process's environment."""
        line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        out, err = os.memfd_create("stdout"), os.memfd_create("stderr")
        env = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
        asked = {
            "home": str(home.folder),
            "url": home.url,
            "run": run,
            "failpoints": failpoints,
            "env": env,
        }
        with theirs:
            fds = [theirs.fileno(), out, err]
            socket.send_fds(self._line, [json.dumps(asked).encode()], fds)
            return WarmProcess(line, out, err)

    def close(self) -> None:
        """End the template; what it has forked goes on."""
        self._line.close()
        self._process.wait(timeout=PATIENCE)


def _serve(line: socket.socket) -> None:
    """Fork for each request until the other end is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers end by themselves
    while True:
        asked, fds, _, _ = socket.recv_fds(line, 1 << 20, 3)
        if not asked:
            return
        threads = len(os.listdir("/proc/self/task"))
        if threads != 1:
            raise RuntimeError(f"the template has {threads} threads: what it forks may hang")
        if os.fork() == 0:
            line.close()
            _keep(json.loads(asked), socket.socket(fileno=fds[0]), fds[1], fds[2])
        for fd in fds:
            os.close(fd)


def _keep(asked: dict[str, Any], line: socket.socket, out: int, err: int) -> None:
    """Fork the process itself, and tell how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        line.close()
        os.dup2(out, 1)
        os.dup2(err, 2)
        code = 1
        try:
            _carry_on(asked)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    line.send(str(child).encode())
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):  # nobody may be waiting any more
        line.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _carry_on(asked: dict[str, Any]) -> None:
    """Carry the run on and print its lineage digest; the failpoints count from here."""
    from agent_forge.events import failpoints
    from testing.worlds import runs

    os.environ.clear()
    os.environ.update(asked["env"])
    failpoints.arm(asked["failpoints"])
    home = Home(Path(asked["home"]), asked["url"])
    print(runs.finish(home, asked["run"]).lineage_digest())


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
