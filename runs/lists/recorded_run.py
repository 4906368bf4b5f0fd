"""A run in Python, for notebooks: tables, panels, the report, the family of a model.

Reads the log and nothing else, and imports no torch.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from agent_forge.runs import kinds
from agent_forge.runs.errors import NotFoundError, UnavailableError
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.state import State
from agent_forge.runs.kinds.view import overview
from agent_forge.runs.lists import finding, tables
from agent_forge.runs.lists.family import AncestorsInRun, family
from agent_forge.runs.panels.head import Panels
from agent_forge.runs.panels.panels import Panel
from agent_forge.runs.system import packages

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingTypeStubs]  # it has none


@dataclass(frozen=True)
class ModelHistory:
    """The runs that a model went through, with its ancestors in each; shown as text."""

    runs: tuple[AncestorsInRun, ...]

    def __repr__(self) -> str:
        lines: list[str] = []
        for generation in self.runs:
            lines.append(f"run {generation.run}:")
            lines += [f"  {a.recipe_id[:12]}  {a.place:18s} {a.words}" for a in generation.ancestors]
        return "\n".join(lines)


class RecordedRun:
    """A run of any kind in the log, read-only.

    It stays as it was when it was read; `refresh` reads the run again.
    """

    def __init__(self, name: str, home: Home | str | Path | None = None) -> None:
        """Read a run by its name or the beginning of it. Raises NotFoundError, UnavailableError."""
        self.home = Home.at(home)
        self.state: State
        self._read(name)

    def _read(self, name: str) -> None:
        with closing(self.home.open_store()) as store:
            self.state = finding.load(store, name)
            self.rows = list(repository.history(store, self.state.run))[: self.state.place]

    def refresh(self) -> Self:
        """Read the run again, with what has happened since; return the run itself."""
        self._read(self.name)
        return self

    @property
    def name(self) -> str:
        """The run's id."""
        return self.state.run

    @property
    def status(self) -> str:
        """submitted, running, paused, completed, failed or cancelled."""
        return self.state.status

    @property
    def overview(self) -> Panels:
        """Head and panels, as the dashboard shows them."""
        return overview(self.state)

    def panel(self, name: str) -> Panel:
        """Return a panel with all of its data. Raises NotFoundError."""
        panels = self.overview.panels
        for panel in panels:
            if panel.name == name:
                return panel
        names = ", ".join(panel.name for panel in panels)
        raise NotFoundError(f"run {self.name} has no panel {name!r}. It has {names}.")

    def report(self) -> dict[str, object]:
        """Return the report of a run that has completed, as plain data."""
        return kinds.of(self.state.kind).view.report(self.state, self.rows)

    def frame(self, kind: str = "") -> pandas.DataFrame:
        """Return a table as a pandas DataFrame; without a name, the first that the kind of run has.

        `runs.lists.tables.tables` names the tables; every run has `events`. Raises ConfigError, and
        UnavailableError without pandas.
        """
        name = kind or next(iter(tables.tables(self.state.kind)))
        table = tables.table(name, self.state, self.rows)
        try:
            import pandas  # pyright: ignore[reportMissingTypeStubs]  # it has none
        except ImportError as error:
            raise UnavailableError(f"{packages.missing('a table', 'pandas')}.") from error
        frame = pandas.DataFrame(list(table.rows), columns=list(table.columns))
        whole = {name: "Int64" for name, kind_ in table.columns.items() if kind_ == "int"}
        real = {name: "float64" for name, kind_ in table.columns.items() if kind_ == "float"}
        return frame.astype(whole | real)  # pyright: ignore[reportUnknownMemberType]

    def lineage(self, model: str = "") -> ModelHistory:
        """Return the ModelHistory of a model, by default the result: its ancestors in all runs.

        Raises NotFoundError.
        """
        with closing(self.home.open_store()) as store:
            return ModelHistory(tuple(family(store, self.name, model)))

    def __repr__(self) -> str:
        done, of = kinds.of(self.state.kind).view.progress(self.state)
        unit = kinds.of(self.state.kind).unit
        share = f", {done} of {of} {unit}s" if of else ""
        return f"<Run {self.name!r}: {kinds.of(self.state.kind).title}, {self.status}{share}>"
