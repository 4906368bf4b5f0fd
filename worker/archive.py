"""A run to one file and back: its log, and the champion's weights if wanted."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from events import ChainError, Envelope, EventStore, archive
from events.store import CODE_VERSION
from evomerge import archived
from evomerge.errors import ConfigError, ConflictError, ForgeError, UnavailableError
from evomerge.log import full_name, history
from evomerge.state import RunState, fold
from worker.artifacts import Artifacts


@dataclass(frozen=True)
class Imported:
    """What an import brought."""

    run: str
    #: Run → events that were not here yet.
    new: dict[str, int]
    weights: int


def export(
    store: EventStore, cache: Artifacts, run: str, path: Path, weights: bool, replace: bool
) -> dict[str, int]:
    """Write a run's archive; events by stream. Raises ConflictError, UnavailableError."""
    run = full_name(store, run)
    try:
        odd = path.is_symlink() or (path.exists() and not path.is_file())
    except OSError as error:
        raise ConfigError(f"{str(path)[:60]} is no name for a file: {error.strerror}.") from error
    if odd:
        raise ConflictError(f"{path} is no ordinary file. Choose another name.")
    if path.exists() and not replace:
        raise ConflictError(f"{path} exists already. Choose another name, or give --force.")
    streams = archived.streams(store, run)
    state = fold(history(store, run))
    blobs = _champion(state, cache) if weights else []
    notes = {"run": run, "champion": state.champion, "written_by": CODE_VERSION}
    try:
        archive.write(path, streams, archived.schemas(), notes, blobs)
    except OSError as error:
        raise UnavailableError(
            f"{path} cannot be written: {error.strerror}. Free space or choose another place."
        ) from error
    return {name: len(rows) for name, rows in streams.items()}


def _champion(state: RunState, cache: Artifacts) -> list[tuple[str, Path]]:
    """The champion's files, built and put into the cache where they are not there."""
    from worker.bench import Bench, set_threads

    if state.champion is None:
        raise ForgeError(f"run {state.run} has no champion yet: leave out --weights.")
    digest = state.built[state.champion][0]
    if not cache.check(digest):
        set_threads()
        bench = Bench(state, cache)
        bench.check_sources()
        cache.keep(digest, bench.weights(state.champion))
    return [(f"{digest}/{file.name}", file) for file in cache.files(digest)]


def load(store: EventStore, cache: Artifacts, path: Path) -> Imported:
    """Take a run in from an archive; what is here already is passed over.

    Raises ArchiveError, ConflictError where a run of that name here is another, NotFoundError.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = archive.read(path, Path(folder))
        run = archived.run_of(found)
        for _ in history(archived.ArchivedLog(found.streams), run):
            pass  # raises where a fork's past is not in it
        new = _adopted(store, found)
        weights = sum(cache.adopt(place) for place in _folders(Path(folder), found.blobs))
    return Imported(run, new, weights)


def _adopted(store: EventStore, found: archive.Archive) -> dict[str, int]:
    """Take in every stream, once all of them fit; run → new events."""
    new: dict[str, int] = {}
    for take in (store.fits, store.adopt):
        for name, rows in found.streams.items():
            try:
                new[archived.title(name)] = take(name, rows)
            except ChainError as error:
                raise ConflictError(
                    f"run {archived.title(name)} is here already and has another history from event "
                    f"{error.version} on: the archive was not imported."
                ) from error
    return new


def _folders(root: Path, blobs: tuple[str, ...]) -> list[Path]:
    return [root / name for name in dict.fromkeys(Path(blob).parts[0] for blob in blobs)]


def rows(path: Path) -> tuple[str, list[Envelope]]:
    """The run that an archive is about, and its history; no database is needed."""
    found = archive.read(path)
    run = archived.run_of(found)
    return run, list(history(archived.ArchivedLog(found.streams), run))
