"""Events that users ask of a run, with an actor and, if given, a reason.

Pure. `runs.kinds.events` registers the events; `runs.kinds.commands` says when an event makes no
sense.
"""

from __future__ import annotations

from events import Event
from runs.system.digests import Digest
from runs.system.integers import Signed


class Paused(Event):
    """A user's request that the run wait."""

    type = "paused"

    reason: str | None = None


class Resumed(Event):
    """A user's request that a paused run go on."""

    type = "resumed"

    reason: str | None = None


class Cancelled(Event):
    """A user's decision to end the run for good."""

    type = "cancelled"

    reason: str | None = None


class Retried(Event):
    """A user's request to try failed tasks, or a failed run, again."""

    type = "retried"

    reason: str | None = None


class PriorityChanged(Event):
    """A user's change of the run's priority."""

    type = "priority_changed"

    priority: Signed
    reason: str | None = None


class Exported(Event):
    """An export of the champion as a model folder, asked for by a user after the run had ended."""

    type = "exported"

    recipe_id: str
    folder: str
    #: Of the weights.
    digest: Digest
    reason: str | None = None


class Imported(Event):
    """A user's import of an unfinished run from an archive: the user owns the run, which waits.

    The archive's owner, priority and champion's folder no longer count.
    """

    type = "imported"

    owner: str
    #: Hash of the event before this one: the last of the archive.
    head: str


WISHES = (Paused, Resumed, Cancelled, Retried, PriorityChanged, Exported, Imported)
