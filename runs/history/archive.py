"""Runs in archives (`events.archive`): the streams that an archive needs, and reading them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agent_forge.events import Envelope
from agent_forge.events.archive import Archive
from agent_forge.events.envelope import Json
from agent_forge.runs import kinds
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.history.children import histories
from agent_forge.runs.history.repository import Log, stream_of
from agent_forge.runs.streams import run_of as run_of_stream


class ArchivedLog:
    """An archive's streams, readable like a log (`runs.history.repository.Log`)."""

    def __init__(self, streams: Mapping[str, Sequence[Envelope]]) -> None:
        self._streams = streams

    def version(self, stream: str) -> int:
        """Return the stream's version; 0 if the stream is missing."""
        return len(self._streams.get(stream, ()))

    def iterate(self, stream: str, after: int = 0, upto: int | None = None) -> Iterator[Envelope]:
        """Yield the stream's rows in order: after version `after`, up to version `upto`."""
        yield from self._streams.get(stream, ())[after:upto]

    def streams(self, prefix: str = "") -> list[Envelope]:
        """Return the first row of every stream whose name starts with `prefix`."""
        return [rows[0] for name, rows in self._streams.items() if name.startswith(prefix)]

    def holder(self, *keys: str) -> str | None:
        """Return the name of the stream whose first event has one of these keys, or None."""
        names = (name for name, rows in self._streams.items() if rows[0].key in keys)
        return next(names, None)


def run_of(archive: Archive) -> str:
    """Return the name of the run that an archive is about. Raises NotFoundError."""
    run = archive.manifest.get("run")
    if not isinstance(run, str) or stream_of(ArchivedLog(archive.streams), run) is None:
        raise NotFoundError("the archive holds no run of a kind that this program knows.")
    return run


def streams(log: Log, run: str, position: int | None = None) -> dict[str, list[Envelope]]:
    """Return stream → its rows that belong to the history of a run or of one of its children.

    The histories end at `position` of the log; None: they are as they are now. The pasts of forks come
    first. Raises NotFoundError, TamperedError.
    """
    rows_by_stream: dict[str, dict[int, Envelope]] = {}
    for _, rows in histories(log, run, position):
        for row in rows:
            rows_by_stream.setdefault(row.stream, {})[row.version] = row
    return {name: list(rows.values()) for name, rows in rows_by_stream.items()}


def schemas(stream: str) -> dict[str, Json]:
    """Return type@version → JSON schema, for the latest schema of every event of a run's kind."""
    kind = kinds.kind_of(stream)
    assert kind
    return {
        f"{name}@{cls.schema_version}": cls.model_json_schema()
        for name, cls in kind.state.registry.types().items()
    }


def title(name: str) -> str:
    """Return the name of the run that a stream belongs to."""
    return run_of_stream(name)
