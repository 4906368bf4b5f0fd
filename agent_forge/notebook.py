"""`Run`: a run of any kind in a script or notebook."""

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


class Run(RecordedRun):
    """A run of any kind in the log, read-only. It stays as it was read; `refresh` reads it again.

        read = forge.Run(best.run)
        print(read.name, read.status, read.report()["champion"])
        read.frame()  # a DataFrame: generations; also "candidates", "evaluations", "items", "events"
        read.plot()  # a matplotlib Figure; also while the run lives
        read.lineage()  # the family of its result

    `name` is the run's name, its id or the beginning of the id. A run that is not of merging has the
    tables of its kind, and `plot("loss")` draws one of its panels (`forge show RUN` lists them).
    """

    def __new__(cls, name: str, home: Home | str | Path | None = None) -> Any:
        """Return the run's own class, if its kind has one. Raises NotFoundError, UnavailableError."""
        with closing(Home.at(home).open_store()) as store:
            stream = repository.named_stream(store, finding.full_name(store, name))
        if stream.startswith(f"{RunState.kind}/"):
            return MergingRun(name, home)
        return super().__new__(cls)

    def plot(self, panel: str = "") -> Any:
        """Return a panel as a matplotlib Figure; without a name, the first. Raises NotFoundError."""
        from worker.exports import panel_picture

        chosen = self.panel(panel) if panel else self.overview.panels[0]
        return panel_picture.figure(chosen)
