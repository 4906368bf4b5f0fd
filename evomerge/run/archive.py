"""Runs in archives (`events.archive`): the streams that an archive needs, and reading them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from events import Envelope
from events.archive import Archive
from evomerge.run import events
from evomerge.run.repository import PREFIX, Log, history, stream
from runs.errors import NotFoundError


class ArchivedLog:
    """An archive's streams, readable like a log (`evomerge.run.repository.Log`)."""

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


def run_of(archive: Archive) -> str:
    """Return the name of the run that an archive is about. Raises NotFoundError."""
    run = archive.manifest.get("run")
    if not isinstance(run, str) or stream(run) not in archive.streams:
        raise NotFoundError("the archive holds no merging run.")
    return run


def streams(log: Log, run: str) -> dict[str, list[Envelope]]:
    """Return stream → the rows that a run's history needs of it, the pasts of forks first."""
    found: dict[str, list[Envelope]] = {}
    for row in history(log, run):
        found.setdefault(row.stream, []).append(row)
    return found


def schemas() -> dict[str, Any]:
    """Return type@version → JSON schema, for the latest schema of every event of a run."""
    return {
        f"{name}@{cls.schema_version}": cls.model_json_schema()
        for name, cls in events.REGISTRY.types().items()
    }


def title(name: str) -> str:
    """Return the name of the run that a stream belongs to."""
    return name.removeprefix(PREFIX)
