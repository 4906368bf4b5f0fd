"""Kinds of run that make models: what they ask of the usual files of their folder. No torch.

    submission.py        plan, check
    origins.py           find, origin
    tasks/execute.py     Context
    tasks/forecast.py    forecast
    tasks/folders.py     settle, files, write
    tasks/verify.py      rebuild, cached, document, folder

A file is imported when it is asked: lists and views import a kind, and must not load torch with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from events import Envelope, Event
from runs.kinds.asked import Asked, Checked, Lookup, Plan
from runs.kinds.forecast import Forecast
from runs.kinds.kind import Context, Kind
from runs.kinds.origin import Origin
from runs.kinds.state import State
from studies.making.events import Advanced, Made
from studies.making.making import Make

if TYPE_CHECKING:
    from runs.home import Home

S = TypeVar("S", bound=State)


class MakingKind(Kind[S]):
    """A kind of run that makes models."""

    #: The kind's folder, as a package.
    package: ClassVar[str]

    @property
    def remeasured(self) -> tuple[type[Event], ...]:
        """The answers that `forge verify --recompute` obtains again; models are `--rebuild`'s."""
        return tuple(event for event in super().remeasured if self.answers[event] is not Make)

    def _file(self, name: str) -> Any:
        return import_module(f"{self.package}.{name}")

    # ---- asking for a run ------------------------------------------------------------------------

    def plan(self, asked: Asked, lookup: Lookup) -> Plan:
        """Return the plan of a run. Raises ConfigError or UnavailableError before any work."""
        return self._file("submission").plan(self, asked, lookup)

    def check(self, plan: Plan) -> Checked:
        """Open models (headers only), tokenizer and data; raise the errors of a start."""
        return self._file("submission").check(plan)

    def forecast(self, submitted: Any, cache: Any, folder: Path) -> Forecast:
        """Return what a run that is submitted so costs here. Raises the errors of a start."""
        return self._file("tasks.forecast").forecast(submitted, cache, folder)

    # ---- scheduling ------------------------------------------------------------------------------

    def built(self, row: Envelope) -> str | None:
        """Return the id of the model or snapshot that an event's row says was made, or None."""
        if row.type not in (Made.type, Advanced.type):
            return None
        return getattr(self.state.registry.load(row), "recipe_id", None)

    def tokens(self, event: Event) -> int:
        """Return the number of tokens that a segment of a training read."""
        return event.tokens if isinstance(event, Advanced) else 0

    # ---- models ----------------------------------------------------------------------------------

    def find(self, state: S, name: str) -> str:
        """Return the recipe id that a name within the run means. Raises NotFoundError."""
        return self._file("origins").find(state, name)

    def origin(self, state: S, rows: Sequence[Envelope], name: str) -> Origin:
        """Return the origin of a model of the run. Raises NotFoundError."""
        return self._file("origins").origin(state, rows, name)

    def settle(
        self, home: Home, state: S, head: str, recipe_id: str, folders: Sequence[Path]
    ) -> str:
        """Return a folder with a model of the run; make it again if need be. Raises ForgeError."""
        return self._file("tasks.folders").settle(home, state, head, recipe_id, folders)

    # ---- work ------------------------------------------------------------------------------------

    def context(self, state: S, cache: Any) -> Context:
        """Open a run's inputs in this process."""
        from weights.threads import set_threads

        set_threads()
        return self._file("tasks.execute").Context(state, cache)

    def result_files(self, state: S, cache: Any) -> list[tuple[str, Path]]:
        """Return the result's weight files, made again if the cache lacks them."""
        return self._file("tasks.folders").files(state, cache)

    def write_result(self, home: Home, state: S, out: Path) -> dict[str, Any]:
        """Write the result's folder and return the report. Raises ForgeError."""
        return self._file("tasks.folders").write(home, state, out)

    # ---- verification ----------------------------------------------------------------------------

    def rebuild(
        self, state: S, cache: Any, ids: Sequence[str], say: Callable[[str], None]
    ) -> Iterator[Any]:
        """Make results again, and compare what comes out with what is recorded."""
        yield from self._file("tasks.verify").rebuild(state, cache, ids, say)

    def reopened(self, state: S, cache: Any) -> tuple[Any, Sequence[str]]:
        """Return the context of a started run, with its number of threads."""
        return self._file("tasks.execute").Context.opened(state, cache), ()

    def cached(self, state: S, cache: Any) -> Iterator[Any]:
        """Yield an error for each of the run's cached files that has another digest."""
        yield from self._file("tasks.verify").cached(state, cache)

    def document(self, folder: Path) -> dict[str, Any] | None:
        """Return the report of a result's folder; None if it has none. Raises DataError."""
        return self._file("tasks.verify").document(folder)

    def verify_folder(
        self, home: Home, folder: Path, document: dict[str, Any], state: S | None, known: bool
    ) -> Iterator[Any]:
        """Compare what is in a result's folder with the run."""
        yield from self._file("tasks.verify").folder(folder, document, state)
