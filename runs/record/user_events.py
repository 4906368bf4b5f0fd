"""Events that users ask of a run, with an actor and, if given, a reason.

Pure. `runs.record.events` registers the events; `runs.kinds.commands` says when an event makes no
sense.
"""

from __future__ import annotations

from events import Event
from runs.system.digests import Digest
from runs.system.integers import Signed


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

    #: What the run is called; the run list makes it unique (`runs.lists.run_names`).
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
