"""Finished runs: carried out once, copied for each test or module that begins with one."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evomerge.run.state import RunState
from runs.home import Home
from testing.models.toys import Toys


class FinishedRun:
    """Finished runs `r` of toy models, by their settings.

    Only for tests whose subject is what comes after a run. The folders are new ones from `folder`.
    """

    def __init__(self, toys: Toys, folder: Callable[[], Path]) -> None:
        self._toys, self._folder = toys, folder
        self._homes: dict[str, Home] = {}

    def __call__(self, **settings: Any) -> tuple[Home, RunState]:
        """Return a home of the caller's own with a finished run, and the state as its log has it."""
        from testing.worlds import runs

        key = json.dumps({**runs.SETTINGS, **settings}, sort_keys=True)
        if key not in self._homes:
            home = Home(self._folder() / "home")
            runs.submit(home, self._toys, **settings)
            runs.finish(home)
            self._homes[key] = home
        copy = Home(Path(shutil.copytree(self._homes[key].folder, self._folder() / "home")))
        return copy, runs.state(copy)


class FinishedTraining:
    """A finished cognate run `r`, trained once for all processes of a session.

    `shared` is a folder that they have in common; the folders of copies are new ones from `folder`.
    """

    def __init__(self, shared: Path, folder: Callable[[], Path]) -> None:
        self._shared, self._folder = shared, folder

    def __call__(self) -> Home:
        """Return a home of the caller's own with the run."""
        from testing.worlds import cognate_runs

        self._shared.mkdir(parents=True, exist_ok=True)
        made = self._shared / "home"
        with open(self._shared / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                home = Home(self._folder() / "home")
                cognate_runs.submit(home)
                cognate_runs.finish(home)
                home.folder.rename(made)
        return Home(Path(shutil.copytree(made, self._folder() / "home")))
