"""Finished runs: carried out once a session for each settings, copied for each test."""

from __future__ import annotations

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
