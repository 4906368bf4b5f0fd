"""Failpoints: named places where a crash would hurt. Off unless asked for.

    FORGE_FAILPOINTS=kill:17         SIGKILL at the 17th hit of any failpoint
    FORGE_FAILPOINTS=kill:name:2     SIGKILL at the second hit of that one
    FORGE_FAILPOINTS=once:FILE:name:2  the same, by the first process that makes FILE
    FORGE_FAILPOINTS=trace:FILE      write the name of every hit to FILE

The crash tests walk all of them.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

_hits: dict[str, int] = {}
_action, _, _argument = os.environ.get("FORGE_FAILPOINTS", "").partition(":")


def arm(setting: str) -> None:
    """Set what `FORGE_FAILPOINTS` would; for tests that fork."""
    global _action, _argument
    _action, _, _argument = setting.partition(":")
    _hits.clear()


def hit(name: str) -> None:
    """A crash-relevant place is passed."""
    if not _action:
        return
    _hits[name] = _hits.get(name, 0) + 1
    if _action == "trace":
        with Path(_argument).open("a") as file:
            file.write(name + "\n")
        return
    place, _, rest = _argument.partition(":") if _action == "once" else ("", "", _argument)
    wanted, _, number = rest.rpartition(":")
    count = _hits[name] if wanted == name else sum(_hits.values()) if not wanted else 0
    if count == int(number) and (not place or _first(Path(place))):
        os.kill(os.getpid(), signal.SIGKILL)


def _first(marker: Path) -> bool:
    """Whether nobody has made this file before us."""
    try:
        marker.open("x").close()
    except FileExistsError:
        return False
    return True
