"""Finished runs: carried out once a session, copied for each test or module that begins with one."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.home import Home
from testing.models.toys import Toys


def once(place: Path, fill: Callable[[Path], object]) -> Path:
    """Return a folder that the first process to ask for it has filled; the others wait for that."""
    place.parent.mkdir(parents=True, exist_ok=True)
    done = place.with_name(f"{place.name}.done")
    with place.with_name(f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(place, ignore_errors=True)
            fill(place)
            done.touch()
    return place


class FinishedRun:
    """Finished runs `r` of toy models, by their settings.

    Only for tests whose subject is what comes after a run. `shared` is a folder that all processes of a
    session have in common; the folders of copies are new ones from `folder`.
    """

    def __init__(self, toys: Toys, shared: Path, folder: Callable[[], Path]) -> None:
        self._toys, self._shared, self._folder = toys, shared, folder

    def __call__(self, **settings: Any) -> tuple[Home, RunState]:
        """Return a home of the caller's own with a finished run, and the state as its log has it."""
        from testing.worlds import runs

        def carry_out(place: Path) -> None:
            runs.submit(Home(place), self._toys, **settings)
            runs.finish(Home(place))

        key = json.dumps({**runs.SETTINGS, **settings}, sort_keys=True)
        made = once(self._shared / hashlib.sha256(key.encode()).hexdigest()[:16], carry_out)
        copy = Home(Path(shutil.copytree(made, self._folder() / "home")))
        return copy, runs.state(copy)


class FinishedTraining:
    """A finished cognate run `r`.

    `shared` is a folder that all processes of a session have in common; the folders of copies are new
    ones from `folder`.
    """

    def __init__(self, shared: Path, folder: Callable[[], Path]) -> None:
        self._shared, self._folder = shared, folder

    def __call__(self) -> Home:
        """Return a home of the caller's own with the run."""
        from testing.miniatures import cognate_runs

        def carry_out(place: Path) -> None:
            cognate_runs.submit(Home(place))
            cognate_runs.finish(Home(place))

        made = once(self._shared / "training", carry_out)
        return Home(Path(shutil.copytree(made, self._folder() / "home")))
