"""Streams of a log as verification reads them: every row of every stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent_forge.events import Envelope, EventStore, Registry
from agent_forge.runs import kinds
from agent_forge.runs.errors import TamperedError
from agent_forge.runs.history import repository
from agent_forge.runs.lists import checks, model_registry, sessions
from agent_forge.worker.commands import accounts, user_limits

#: Streams that do not belong to a run, and the registry of their events.
OTHERS: dict[str, Registry] = {
    accounts.STREAM: accounts.REGISTRY,
    user_limits.STREAM: user_limits.REGISTRY,
    model_registry.STREAM: model_registry.REGISTRY,
    repository.STREAM: repository.REGISTRY,
    sessions.STREAM: sessions.REGISTRY,
}


def registry_of(stream: str) -> Registry | None:
    """Return the registry of a stream that belongs to no run; None for streams of unknown names."""
    return checks.REGISTRY if stream.startswith(f"{checks.STREAM}/") else OTHERS.get(stream)


class Evidence:
    """A log to verify: unlike the store, it also gives rows before version 1 and duplicate rows."""

    def __init__(self, store: EventStore) -> None:
        self._store = store

    def version(self, stream: str) -> int:
        """Return the stream's version; 0 if there is no such stream."""
        return self._store.version(stream)

    def iterate(self, stream: str, after: int = 0, upto: int | None = None) -> Iterator[Envelope]:
        """Yield the stream's rows in order; with `after` 0 all rows, even those of invalid versions.

        Raises TamperedError if the table and its index have other rows under the name.
        """
        rows = self._store.everything(stream)
        if why := misfiled(self._store, stream, rows):
            raise TamperedError(why)
        for row in rows:
            version = row.version if isinstance(row.version, int) else after + 1
            if (not after or version > after) and (upto is None or version <= upto):
                yield row

    def holder(self, *keys: str) -> str | None:
        """Return the name of the stream that has an event under one of these keys, or None."""
        return self._store.holder(*keys)

    def streams(self, prefix: str = "") -> list[Envelope]:
        """Return the first row of every stream whose name starts with `prefix`."""
        return self._store.streams(prefix)


def misfiled(store: EventStore, stream: str, rows: Sequence[Envelope]) -> str | None:
    """Return a sentence: how the table and its index of names differ; None if they agree.

    `rows` are everything of the stream. A change of the database's file can reach one of them alone.
    """
    other = next((row for row in rows if row.stream != stream), None)
    if other is not None:
        return (
            f"event {other.version} of stream {stream} stands under the name {other.stream!r} in the "
            "table: it was changed, or the database's file is damaged (`forge db check`)"
        )
    if (count := store.count(stream)) > len(rows):
        return (
            f"stream {stream} has {count} events by the index, {len(rows)} in the table: events were "
            "changed, or the database's file is damaged (`forge db check`)"
        )
    return None


def named(store: EventStore, target: str) -> str | None:
    """Return `target` if it is the name of a stream that no run owns; else None."""
    if target in OTHERS:
        return target
    foreign = not kinds.is_run(target) and target in store.names()
    return target if foreign else None
