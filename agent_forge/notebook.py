"""`Run`: a run of any kind in a notebook; `ask`: pause it, cancel it, call it by another name."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from evomerge.reports.outputs.notebook import Run as MergingRun
from evomerge.run.state import RunState
from runs.history import repository
from runs.home import Home
from runs.lists import finding
from runs.lists.recorded_run import RecordedRun
from worker.commands import control


def ask(
    run: str,
    word: str,
    value: Any = None,
    reason: str | None = None,
    home: Home | str | Path | None = None,
) -> None:
    """Ask something of a run: `ask("first-try", "pause", reason="the GPU is needed")`.

    Words and their values are those of `forge` (`runs.kinds.controls`). Raises ConflictError,
    NotFoundError, ConfigError.
    """
    place = Home.at(home)
    with closing(place.open_store()) as store:
        control.ask(store, place, finding.full_name(store, run), word, value, reason)


class Run(RecordedRun):
    """A run of any kind in the log, read-only; of a merging run, `evomerge.Run`."""

    def __new__(cls, name: str, home: Home | None = None) -> Any:
        """Return the run's own class, if its kind has one. Raises NotFoundError, UnavailableError."""
        with closing((home or Home.default()).open_store()) as store:
            stream = repository.named_stream(store, finding.full_name(store, name))
        if stream.startswith(f"{RunState.kind}/"):
            return MergingRun(name, home)
        return super().__new__(cls)

    def plot(self, panel: str = "") -> Any:
        """Return a panel as a matplotlib Figure; without a name, the first. Raises NotFoundError."""
        from worker.exports import panel_picture

        chosen = self.panel(panel) if panel else self.overview.panels[0]
        return panel_picture.figure(chosen)
