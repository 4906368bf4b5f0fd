"""Files of runs of a kind, and verification: whether work that is done again gives what the log says.

What the log alone can tell is checked by `Kind.validate_answer` and `Kind.wrong_result`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agent_forge.events import Envelope, Event
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.event_types import SourceRecord
from agent_forge.runs.kinds.capability import Cache, Capability, S
from agent_forge.runs.kinds.decide import Context, Delegate, Start, Task
from agent_forge.runs.record import events, lineage

if TYPE_CHECKING:
    from agent_forge.runs.home import Home


class Storage(Capability[S]):
    """The files that runs of a kind leave on machines; by default none."""

    def built(self, row: Envelope) -> str | None:
        """Return the id of what an event's row says was built; by default None."""
        return None

    def needs(self, task: Task) -> str | None:
        """Return the id of what a task reads and some device has built; by default None."""
        return None

    def keep(self, state: S, cache: Cache) -> None:
        """Write to disk what a restart would need most and is in memory only; by default nothing."""

    def resumes(self, state: S, cache: Cache) -> list[str]:
        """Return sentences on where work under way goes on, with this weight cache; by default []."""
        return []

    def stored(self, state: S) -> frozenset[str]:
        """Return names of what a run has in the shared store just to go on; by default frozenset()."""
        return frozenset()

    def items_address(self, state: S) -> str:
        """Return the content address of what a started run has pinned, its items too; by default ""."""
        return ""

    def items_file(self, state: S, cache: Cache) -> Path:
        """Raise NotFoundError; a kind with items returns the JSON lines file of a run's items."""
        raise NotFoundError(f"run {state.run} has no items to measure on.")

    def result_files(self, state: S, cache: Cache) -> list[tuple[str, Path]]:
        """Return [(name in an archive, file)] of the result's weights; by default []."""
        return []

    def materialise(
        self, home: Home, state: S, head: str, recipe_id: str, folders: Sequence[Path]
    ) -> str:
        """Return a folder with a model of the run; build it into the last of `folders` if need be.

        `head` is the head of the run's chain. Raises ForgeError.
        """
        raise NotImplementedError


class Verification(Capability[S]):
    """The rules by which second results of a kind's runs are compared with the recorded ones."""

    def pins(self, state: S) -> dict[str, Any]:
        """Return what `started` pins as a JSON dict, without models' names and what differs by chance.

        Runs with the same settings and the same pins do the same work.
        """
        started: events.Started = state.started
        unnamed = {name: _unnamed(getattr(started, name)) for name in type(started).model_fields}
        payload = started.model_copy(update=unnamed).model_dump(mode="json")
        return lineage.shared(started.type, payload)

    def agrees(self, state: S, recorded: Event, repeat: Event) -> bool:
        """Return True if a second result fits the recorded one: by default if all but LUCK is equal."""
        return events.without_volatile(recorded) == events.without_volatile(repeat)

    def fingerprint(self, event: Event) -> str:
        """Return a result's digest, or else its data without volatile fields, as text."""
        data = events.without_volatile(event)
        return str(data.get("digest") or data)

    # ---- measured again ------------------------------------------------------------------------

    @property
    def remeasured(self) -> tuple[type[Event], ...]:
        """The classes of the answers that `forge verify --recompute` obtains again."""
        answers = self.kind.answers.items()
        return tuple(event for event, task in answers if task not in (Start, Delegate))

    def reopened(self, state: S, cache: Cache) -> tuple[Context, Sequence[str]]:
        """Return (context of a started run to measure in, how its profile differs: by default ()).

        Raises ForgeError if nothing can be measured here, UnreproducedError for other numbers under the
        run's profile.
        """
        context = self.kind.context(state, cache)
        context.check_unchanged()
        return context, ()

    def comparable(self, event: Event, recorded: Event) -> dict[str, Any]:
        """Return the data of `event` that must come out as in `recorded`: all but volatile fields."""
        return events.without_volatile(event)

    # ---- made again ----------------------------------------------------------------------------

    def chosen(self, state: S, which: str) -> list[str]:
        """Raise NotFoundError; a kind that rebuilds returns the ids for "champion", "all" or an id."""
        raise NotFoundError(f"run {state.run} is {self.kind.title}: nothing of it can be rebuilt.")

    def rebuild(
        self, state: S, cache: Cache, ids: Sequence[str], say: Callable[[str], None]
    ) -> Iterator[Any]:
        """Make results again; yield a finding for each that differs; by default do nothing.

        `cache` is empty but for the inputs of runs. `say` hears of each result.
        """
        yield from ()

    # ---- files ---------------------------------------------------------------------------------

    def cached(self, state: S, cache: Cache) -> Iterator[Any]:
        """Yield a finding for each cached file that is not what the log says; by default nothing."""
        yield from ()

    def document(self, folder: Path) -> dict[str, object] | None:
        """Return {"run", "chain_head" ...} of a result's folder; None, the default, for another's.

        Raises DataError.
        """
        return None

    def folder(
        self, home: Home, folder: Path, document: dict[str, object], state: S | None, is_known: bool
    ) -> Iterator[Any]:
        """Yield findings about a result's folder, by default none; `is_known`: this log has its run.

        `state` is the run's, None if the log has no such run or its history is broken.
        """
        yield from ()


def _unnamed(value: object) -> object:
    """Return a field of `started` with the records of models without their names."""
    if isinstance(value, SourceRecord):
        return value.model_copy(update={"name": ""})
    return (
        tuple(map(_unnamed, cast("tuple[object, ...]", value))) if isinstance(value, tuple) else value
    )
