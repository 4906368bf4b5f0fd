"""The outcome of a run, for other runs: models by role, figures, items; and the runs that it delegates.

Pure, but for `items_file`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from runs.errors import NotFoundError
from runs.event_types import Figure, MadeModel
from runs.kinds.state import State
from runs.kinds.tasks import Delegate
from runs.record.events import ChildEnded

S = TypeVar("S", bound=State)


class Outcome(Generic[S]):
    """The part of a kind of run that other runs build on."""

    #: Figure that a completed run has → what it is, in words.
    figures_of: ClassVar[Mapping[str, str]] = {}
    #: True if its runs pin items to measure on, which other runs may measure on too.
    gives_items: ClassVar[bool] = False

    def roles(self, config: Any) -> Sequence[str]:
        """Return the roles of the models that a run with these settings gives."""
        return ()

    def results(self, state: S) -> dict[str, MadeModel]:
        """Return role → model of a completed run."""
        return {}

    def figures(self, state: S) -> dict[str, Figure]:
        """Return the figures of a completed run, by the names in `figures_of`."""
        return {}

    def items_file(self, state: S, cache: Any) -> Path:
        """Return the file of the items that a run has pinned, JSON lines. Raises ForgeError."""
        raise NotFoundError(f"run {state.run} has no items to measure on.")

    # ---- of a kind whose tasks are runs --------------------------------------------------------

    def returned(self, state: S, task: Delegate, child: State) -> ChildEnded:
        """Return the answer to a task whose child has ended."""
        raise NotImplementedError

    def refused(self, state: S, task: Delegate, why: str) -> ChildEnded:
        """Return the answer to a task whose child could not be submitted."""
        raise NotImplementedError

    def retries(self, state: S, task: Delegate) -> str | None:
        """Return the idempotency key under which a child that failed is retried for this task.

        None: the child's failure is the answer.
        """
        return None

    def children(self, state: S) -> Iterator[tuple[Delegate, ChildEnded]]:
        """Yield the tasks whose child has ended, each with its answer."""
        yield from ()
