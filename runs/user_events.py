"""What users ask of a run, as events with an actor and, where they gave one, a reason. Pure.

`evomerge.run.events` registers them; `evomerge.run.commands` says when one makes no sense.
"""

from __future__ import annotations

from events import Event
from runs.system.digests import Digest
from runs.system.integers import Signed


class Paused(Event):
    """Somebody lets the run wait."""

    type = "paused"

    reason: str | None = None


class Resumed(Event):
    """Somebody lets a paused run go on."""

    type = "resumed"
    schema_version = 2

    reason: str | None = None


class Cancelled(Event):
    """Somebody ended the run for good."""

    type = "cancelled"

    reason: str | None = None


class Retried(Event):
    """Somebody wants failed tasks, or a failed run, to be tried again."""

    type = "retried"
    schema_version = 2

    reason: str | None = None


class PriorityChanged(Event):
    """Somebody gave the run another priority."""

    type = "priority_changed"
    schema_version = 2

    priority: Signed
    reason: str | None = None


class Exported(Event):
    """Somebody had the champion written as a model folder, after the run had ended."""

    type = "exported"

    recipe_id: str
    folder: str
    #: Of the weights.
    digest: Digest
    reason: str | None = None


class Imported(Event):
    """Somebody took the unfinished run in from an archive: it is theirs now, and waits.

    What the archive said of owner, priority and the champion's folder counts no more.
    """

    type = "imported"

    owner: str
    #: Hash of the event before this one: the last of the archive.
    head: str


WISHES = (Paused, Resumed, Cancelled, Retried, PriorityChanged, Exported, Imported)
