"""A run to one file and back: its log, and the champion's weights if wanted."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evaluation.lm_eval import spec as lm_eval_spec
from events import ArchiveError, ChainError, Context, Envelope, EventStore, New, archive
from events.store import CODE_VERSION
from evomerge.run import archive as run_archive
from evomerge.run import events
from evomerge.run.audit import Finding, audit
from evomerge.run.commands import refusal
from evomerge.run.repository import full_name, history
from evomerge.run.state import RunState, fold
from runs import imported_pasts
from runs.errors import ConfigError, ConflictError, ForgeError, UnavailableError
from runs.streams import NAME, PREFIX, stream
from worker.append import actor, project
from worker.storage.weight_cache import Artifacts, read_weights


@dataclass(frozen=True)
class Imported:
    """What an import brought."""

    run: str
    #: Run → events that were not here yet.
    new: dict[str, int]
    weights: int
    #: Runs that can go on: they wait, and are the importer's.
    waiting: list[str]
    #: Those of them that had failed: they need a retry, too.
    failed: list[str]


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
    streams = run_archive.streams(store, run)
    state = fold(history(store, run))
    blobs = _champion(state, cache) if weights else []
    notes = {"run": run, "champion": state.champion, "written_by": CODE_VERSION}
    try:
        archive.write(path, streams, run_archive.schemas(), notes, blobs)
    except OSError as error:
        raise UnavailableError(
            f"{path} cannot be written: {error.strerror}. Free space or choose another place."
        ) from error
    return {name: len(rows) for name, rows in streams.items()}


def _champion(state: RunState, cache: Artifacts) -> list[tuple[str, Path]]:
    """The champion's files, built and put into the cache where they are not there."""
    from worker.tasks.context import Bench, set_threads

    if state.champion is None:
        raise ForgeError(f"run {state.run} has no champion yet: leave out --weights.")
    digest = state.built[state.champion][0]
    if not cache.check(digest):
        set_threads()
        bench = Bench(state, cache)
        bench.check_sources()
        cache.keep(digest, bench.weights(state.champion))
    return [(f"{digest}/{file.name}", file) for file in cache.files(digest)]


def load(
    store: EventStore,
    cache: Artifacts,
    path: Path,
    by: str | None = None,
    task_files: bool = False,
) -> Imported:
    """Take a run in from an archive; what is here already is passed over.

    `task_files` allows a run that measures with task files of lm-evaluation-harness, which are code.

    Nothing is recorded before all of it was verified. A run that can still go on is from now on `by`'s,
    or whose process this is, and waits until it is resumed: a stranger's archive starts nothing here.
    A run that comes only as the past of a fork stays open for more of its history, and waits, too.
    Raises ArchiveError, ConflictError if a run of that name here is another, NotFoundError,
    UnavailableError.
    """
    who = by or actor()
    with tempfile.TemporaryDirectory() as folder:
        found = archive.read(path, Path(folder))
        run, rows = _history(path, found)
        for wrong in audit(rows):
            if wrong.level != "note":
                raise ArchiveError(str(path), f"at event {wrong.place}", wrong.message)
        state = fold(rows)
        for refused in [] if task_files else _task_files(state):
            raise ConfigError(refused.message)
        check_weights(path, found.blobs, Path(folder), state)
        ours = {name: _taken(found, name, who) for name in found.streams}
        fresh = _each(found, store.fits)
        places = _folders(Path(folder), found.blobs)
        for place in places:
            cache.adopt(place)
        context = Context(actor=who)
        for name, rows in found.streams.items():
            if name != stream(run) and ours[name] and fresh[run_archive.title(name)]:
                imported_pasts.note(store, run_archive.title(name), rows[-1].hash, context)
        own = {stream(run): ours[stream(run)]}
        new = _each(found, lambda name, rows: store.adopt(name, rows, own.get(name, ()), context))
        project(store)
    waiting = [run] if ours[stream(run)] and new[run] else []
    return Imported(run, new, len(places), waiting, waiting if state.failed else [])


def _task_files(state: RunState) -> list[Finding]:
    """Return a finding if carrying the run on, or measuring it again, would run a file's code."""
    given = state.submitted.data if state.submitted else ()
    files = [
        spec.file
        for spec in map(lm_eval_spec.parse, filter(lm_eval_spec.is_task, given))
        if spec.file
    ]
    why = (
        f"run {state.run} measures with the task file {str(file)!r} of this machine, and a task file "
        "can run code. Look at the file; then import the run with --allow-task-files."
        for file in files[:1]
    )
    return [Finding("unchecked", "files", said) for said in why]


def _each(found: archive.Archive, take: Callable[[str, list[Envelope]], int]) -> dict[str, int]:
    """Run → what `take` says of its stream. Raises ConflictError if it does not fit what is here."""
    new: dict[str, int] = {}
    for name, rows in found.streams.items():
        try:
            new[run_archive.title(name)] = take(name, rows)
        except ChainError as error:
            raise ConflictError(
                f"run {run_archive.title(name)} is here already and has another history from event "
                f"{error.version} on: the archive was not imported."
            ) from error
    return new


def _taken(found: archive.Archive, name: str, who: str) -> list[New]:
    """The event that makes a run the importer's and lets it wait; none if it has ended for good."""
    run = run_archive.title(name)
    state = fold(history(run_archive.ArchivedLog(found.streams), run))
    event = events.Imported(owner=who, head=state.head)
    if refusal(state, event) is not None:
        return []
    return [New(event, f"{run}/{event.type}/{state.head}")]


def _history(path: Path, found: archive.Archive) -> tuple[str, list[Envelope]]:
    """The run and its history, which must be all that the archive holds. Raises ArchiveError."""
    run = run_archive.run_of(found)
    for name in found.streams:
        if not name.startswith(PREFIX) or NAME.fullmatch(run_archive.title(name)) is None:
            why = f"it holds the stream {name[:100]!r}, which is no run's"
            raise ArchiveError(str(path), "in its manifest", why)
    rows = list(history(run_archive.ArchivedLog(found.streams), run))
    counts = Counter(row.stream for row in rows)
    for name, own in found.streams.items():
        if counts[name] != len(own):
            title = run_archive.title(name)
            why = f"it holds events of {title} that are no part of run {run}'s history"
            raise ArchiveError(str(path), "in its manifest", why)
    return run, rows


def check_weights(path: Path, blobs: tuple[str, ...], folder: Path, state: RunState) -> None:
    """Refuse files that are not the champion's weights. Raises ArchiveError."""
    if not blobs:
        return
    champion = state.built[state.champion][0] if state.champion else None
    for blob in blobs:
        at, _, name = blob.partition("/")
        if at != champion or "/" in name or not name.endswith(".safetensors"):
            raise ArchiveError(
                str(path), f"at blobs/{blob[:100]}", "it is no file of the champion's"
            )
    if champion is None or read_weights(folder / champion, champion) is None:
        what = "the weights are not those that the log has the digest of"
        raise ArchiveError(str(path), f"at blobs/{blobs[0]}", what)


def _folders(root: Path, blobs: tuple[str, ...]) -> list[Path]:
    return [root / name for name in dict.fromkeys(Path(blob).parts[0] for blob in blobs)]


def inspected(path: Path) -> tuple[str, list[Envelope], list[Finding]]:
    """The run that an archive is about, its history, and what is wrong; no database is needed.

    Everything that an import refuses by itself is found here; not that a run of that name here is
    another, or that there is no room. Raises ArchiveError for what cannot be read at all.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = archive.read(path, Path(folder))
        run, rows = _history(path, found)
        findings = audit(rows)
        if not [f for f in findings if f.level != "note"]:
            state = fold(rows)
            check_weights(path, found.blobs, Path(folder), state)
            findings += _task_files(state)
    return run, rows, findings
