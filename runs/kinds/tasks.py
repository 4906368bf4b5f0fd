"""Tasks, decisions, and what does the tasks: the work of a run outside of its log. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from events import Event, New


class Task(Protocol):
    """Work whose result is one event; the task's key ends the event's idempotency key."""

    @property
    def key(self) -> str:
        """The task's name within its run."""
        ...


@dataclass(frozen=True)
class Start:
    """Task: read what the run depends on, and pin it. Every kind's first task."""

    key = "start"


@dataclass(frozen=True)
class Decision:
    """The facts or tasks that follow from a state; both empty if the run has ended or is paused.

    Facts follow from the log, so any process may append them as they are. Tasks must be carried out
    in the world. Facts come first: after appending them, the caller decides again.
    """

    facts: list[New] = field(default_factory=list)
    tasks: Sequence[Any] = ()


class Context(Protocol):
    """The opened inputs of one run in one process, and the work on its tasks."""

    #: The state that the context was opened for; its tasks are carried out from it.
    state: Any

    def carry_out(self, task: Any) -> Event:
        """Do the task and return its event; append nothing. Raises the errors of the work."""
        ...

    def check_unchanged(self) -> None:
        """Raise a ForgeError if an input or the profile is not the one that `started` pins."""
        ...

    def share(self, task: Any, tasks: Sequence[Any]) -> Sequence[Any]:
        """Return the open tasks, this one first, whose work one process had better do at once."""
        ...

    def prepare(self, tasks: Sequence[Any]) -> None:
        """Do the work that these tasks share. `carry_out` is then called for each of them."""
        ...
