"""The file in the home that lists what `forge up` started, so that the next one finds leftovers."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

from runs.errors import ConflictError
from worker.queue.leases import alive, owner_of

#: Seconds that the parts of an ended `forge up` get to end too.
PATIENCE = 10.0


class Running:
    """The file with the parts of a `forge up`: the name and the process of each part."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "up.json"
        self._parts: dict[str, int] = {}

    def note(self, name: str, pid: int) -> None:
        """Note a part; a part of the same name is replaced."""
        self._parts[name] = pid
        owners = {name: owner_of(pid, name) for name, pid in self._parts.items()}
        self._file.write_text(json.dumps(owners, indent=2))

    def forget(self) -> None:
        """Remove the file, once all parts were stopped."""
        self._file.unlink(missing_ok=True)

    def refuse_left(self, patience: float = PATIENCE) -> None:
        """Wait until the parts that an earlier `forge up` left have ended, at most `patience` seconds.

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
        """Return the parts of an earlier `forge up` that still run: name → process id."""
        noted = {}
        with contextlib.suppress(OSError, ValueError):
            noted = json.loads(self._file.read_text())
        return {name: owner.split("/")[1] for name, owner in noted.items() if alive(owner)}
