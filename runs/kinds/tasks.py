"""Tasks and decisions: the work that a run needs done outside of its log. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from events import New
from runs.kinds.asked import Asked


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
class Delegate:
    """Task: a run of its own, a child of this one. A device works on the child, and not on the task.

    Its answer is a `runs.record.events.ChildEnded`, made by the kind's `returned` when the child has
    ended.
    """

    key: str
    #: The name of the child.
    run: str
    asked: Asked


@dataclass(frozen=True)
class Decision:
    """The facts or tasks that follow from a state; both empty if the run has ended or is paused.

    Facts follow from the log, so any process may append them as they are. Tasks must be carried out
    in the world. Facts come first: after appending them, the caller decides again.
    """

    facts: list[New] = field(default_factory=list)
    tasks: Sequence[Any] = ()
