"""Events that every kind of run has: of its own course, and of its users.

A kind derives its own `Submitted`, `Forked`, `Started` and `Completed` from these, adds further
events, and registers all with `registry`. Events of users have an actor and, if given, a reason;
`runs.kinds.controls` says when such an event makes no sense. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field

from agent_forge.events import Event, Registry
from agent_forge.events.registry import Upcaster
from agent_forge.runs.event_types import Count, Digest, Large, Pinned, Signed


class Wish(Event):
    """An event that a user asks for. A kind may have further ones, which its `refuses` judges."""


class Paused(Wish):
    """A user's request that the run wait."""

    type = "paused"

    reason: str | None = None


class Resumed(Wish):
    """A user's request that a paused run go on."""

    type = "resumed"

    reason: str | None = None


class Cancelled(Wish):
    """A user's decision to end the run for good."""

    type = "cancelled"

    reason: str | None = None


class Retried(Wish):
    """A user's request to try failed tasks, or a failed run, again."""

    type = "retried"

    reason: str | None = None


class PriorityChanged(Wish):
    """A user's change of the run's priority."""

    type = "priority_changed"

    priority: Signed
    reason: str | None = None


class Described(Wish):
    """A user's words about the run: its name, a note, tags. None: as before.

    Words are labels. Streams, addresses and digests have the run's id, which never changes.
    """

    type = "described"

    #: What the run is called; the run list makes it unique (`runs.lists.projections`).
    name: str | None = None
    #: Empty: no note.
    note: str | None = None
    #: All tags that it has now.
    tags: tuple[str, ...] | None = None
    #: The key that a user submitted the run with.
    key: str | None = None


class Exported(Wish):
    """An export of the champion as a model folder, asked for by a user after the run had ended."""

    type = "exported"

    recipe_id: str
    folder: str
    #: Of the weights.
    digest: Digest
    reason: str | None = None


class Imported(Wish):
    """A user's import of an unfinished run from an archive: the user owns the run, which waits.

    The archive's owner, priority and champion's folder no longer count.
    """

    type = "imported"

    owner: str
    #: Hash of the event before this one: the last of the archive.
    head: str


#: Those that every kind of run has.
WISHES = (Paused, Resumed, Cancelled, Retried, PriorityChanged, Described, Exported, Imported)


#: Fields that may differ between a crashed and an undisturbed run.
LUCK = frozenset({"seconds", "decoding_seconds", "child", "child_version", "child_head", "reused"})

#: Priorities go from minus `MOST_PRIORITY` to `MOST_PRIORITY`.
MOST_PRIORITY = 1_000_000

Quarantine = Literal["fail", "worst-fitness"]


class Submitted(Event):
    """A run was asked for."""

    type = "submitted"

    run: str
    owner: str
    #: The kind's settings; each kind has a class of its own for them, with `device` in it.
    config: Any
    #: Where the result's folder is to be written.
    output_dir: str | None = None
    #: Of one owner's runs, those with the highest priority go first.
    priority: Signed = 0
    #: Labels that a worker must offer to take the run's tasks.
    labels: tuple[str, ...] = ()
    #: What happens when a task has killed its process three times. fail: the run fails;
    #: worst-fitness: the run goes on without the task's result, which counts as the worst fitness.
    quarantine: Quarantine = "fail"
    reason: str | None = None


class Forked(Event):
    """A run was branched from another: what that one had recorded up to a place is its past."""

    type = "forked"

    run: str
    owner: str
    #: The run whose stream holds the last event of the common past, its version there and its hash.
    parent: str
    version: Count
    head: str
    #: Settings that were changed, then all settings after the change.
    changes: dict[str, object]
    config: Any
    output_dir: str | None = None
    reason: str | None = None


class Started(Event):
    """Event: the inputs of the run have been read and pinned."""

    type = "started"

    warnings: tuple[str, ...]

    @property
    def machine(self) -> str | None:
        """The profile that a device must offer to work on the run; None: any device may."""
        profile = getattr(self, "profile", None)
        return profile.of_machine if profile else None


class Completed(Event):
    """The run has ended with a result."""

    type = "completed"

    lineage_digest: Digest
    #: Hash of the event before this one: the chain that the result stands on.
    chain_head: str


class ChildEnded(Event):
    """A run that was delegated has ended: the base of a kind's answers to `Delegate`.

    Name, version and head of the child differ between runs that are equal otherwise: they are no part
    of the lineage, nor is that an ended run was taken.
    """

    child: str
    child_version: Count
    child_head: str
    #: Set if no run was begun for the task, because an equal one had ended: the digest of what both
    #: have in common (`runs.history.children.identity`). Empty: the child is the task's own.
    reused: Pinned = ""


class TaskFailed(Event):
    """A task raised an error."""

    type = "task_failed"

    task: str
    attempt: Count
    error: str


class TaskDied(Event):
    """The process that did a task died, and the one that watched it lives."""

    type = "task_died"

    task: str
    attempt: Count
    #: What ended the process: a signal or an exit code.
    how: str


class TaskQuarantined(Event):
    """A task has killed too many processes and is not tried again."""

    type = "task_quarantined"

    task: str
    reason: str


class PartDone(Event):
    """A part of a long task was done: pieces `begin` to `end` of the `of` that are known so far.

    Where parts end is luck, as the pace of devices is: no result depends on it.
    """

    type = "part_done"

    #: Key of the whole task.
    task: str
    begin: Count
    end: Count
    of: Count
    #: BLAKE3 of the results of the pieces, as tensors: the name under which they are kept.
    digest: Digest
    seconds: float = Field(ge=0)


class MemoryPeaked(Event):
    """A process took more private memory for a task of the run than any had before.

    Noted from half a gigabyte beyond what the process had before its first task; luck, like seconds.
    """

    type = "memory_peaked"

    #: Key of the whole task.
    task: str
    #: All private memory of the process, imports included.
    bytes: Large


class Failed(Event):
    """The run has ended without a result."""

    type = "failed"

    reason: str


class DivergenceDetected(Event):
    """The same task gave two different results: the profile's promise is broken."""

    type = "divergence_detected"

    task: str
    recorded: str
    found: str


#: Types of the events that end a run.
ENDED = frozenset({Completed.type, Failed.type, Cancelled.type})

_OF_TASKS = (PartDone, MemoryPeaked, TaskFailed, TaskDied, TaskQuarantined)
#: Events that are the same class for every kind of run.
COMMON = (*_OF_TASKS, Failed, DivergenceDetected, *WISHES)


def registry(
    classes: Iterable[type[Event]], upcasters: Mapping[tuple[str, int], Upcaster] | None = None
) -> Registry:
    """Return the registry of a kind's events: its own classes and the common ones."""
    event_registry = Registry()
    for cls in (*classes, *COMMON):
        event_registry.event(cls)
    for (type_, schema), upcast in (upcasters or {}).items():
        event_registry.upcaster(type_, schema)(upcast)
    return event_registry


def without_volatile(event: Event) -> dict[str, Any]:
    """Return the event's data without the fields in `LUCK`, which differ between equal runs."""
    return {k: v for k, v in event.model_dump(mode="json").items() if k not in LUCK}
