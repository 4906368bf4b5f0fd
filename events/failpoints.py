"""Failpoints: named places where a crash would hurt, off unless the environment asks for them.

    FORGE_FAILPOINTS=kill:17         SIGKILL at the 17th hit of any failpoint
    FORGE_FAILPOINTS=kill:name:2     SIGKILL at the second hit of failpoint `name`
    FORGE_FAILPOINTS=once:FILE:name:2  the same, by the first process that makes FILE
    FORGE_FAILPOINTS=each:FOLDER     remove the file FOLDER/name, and SIGKILL, at each that has one
    FORGE_FAILPOINTS=hold:FILE:name  wait at failpoint `name` as long as FILE is there
    FORGE_FAILPOINTS=trace:FILE      write the name of every hit to FILE

The crash tests walk all failpoints.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_hits: dict[str, int] = {}
_action, _, _argument = os.environ.get("FORGE_FAILPOINTS", "").partition(":")


def arm(setting: str) -> None:
    """Activate failpoints as the variable `FORGE_FAILPOINTS` does, and forget all hits; for tests."""
    global _action, _argument
    _action, _, _argument = setting.partition(":")
    _hits.clear()


def hit(name: str) -> None:
    """Record that the failpoint `name` is passed; trace, wait or kill the process if asked to."""
    if not _action:
        return
    _hits[name] = _hits.get(name, 0) + 1
    if _action == "trace":
        with Path(_argument).open("a") as file:
            file.write(name + "\n")
        return
    if _action == "hold":
        file, _, target = _argument.rpartition(":")
        while target == name and Path(file).exists():
            time.sleep(0.01)
        return
    if _action == "each":
        if _remove(Path(_argument) / name):
            os.kill(os.getpid(), signal.SIGKILL)
        return
    place, _, rest = _argument.partition(":") if _action == "once" else ("", "", _argument)
    target, _, number = rest.rpartition(":")
    count = _hits[name] if target == name else sum(_hits.values()) if not target else 0
    if count == int(number) and (not place or _create(Path(place))):
        os.kill(os.getpid(), signal.SIGKILL)


def _create(marker: Path) -> bool:
    """Create the file; return True if this process created it, False if it existed."""
    try:
        marker.open("x").close()
    except FileExistsError:
        return False
    return True


def _remove(file: Path) -> bool:
    """Remove the file; return True if this process removed it, False if it was missing."""
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    return True
