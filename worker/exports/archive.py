"""Export of a run to one archive file, and import: its log, and the result's weights if wanted.

`ArchivedLog` reads the streams of an archive (`events.archive`) like a log.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent_forge.evaluation.lm_eval import spec as lm_eval_spec
from agent_forge.events import ArchiveError, Cause, ChainError, Envelope, EventStore, New, archive
from agent_forge.events.archive import Archive
from agent_forge.events.envelope import Json
from agent_forge.events.store import CODE_VERSION
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, ConflictError, NotFoundError, UnavailableError
from agent_forge.runs.history import children as run_children
from agent_forge.runs.history import repository
from agent_forge.runs.history.audit import Finding, audit
from agent_forge.runs.history.children import histories
from agent_forge.runs.history.repository import Log, fold, history, opened, stream_of
from agent_forge.runs.kinds.controls import refusal
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists.finding import full_name
from agent_forge.runs.record import events
from agent_forge.runs.streams import NAME
from agent_forge.runs.streams import run_of as run_of_stream
from agent_forge.weights.storage.weight_cache import Artifacts, read_weights
from agent_forge.worker.append import actor, project


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


def streams_of(log: Log, run: str, position: int | None = None) -> dict[str, list[Envelope]]:
    """Return stream → its rows that belong to the history of a run or of one of its children.

    The histories end at `position` of the log; None: they are as they are now. The pasts of forks come
    first. Raises NotFoundError, TamperedError.
    """
    rows_by_stream: dict[str, dict[int, Envelope]] = {}
    for _, rows in histories(log, run, position):
        for row in rows:
            rows_by_stream.setdefault(row.stream, {})[row.version] = row
    return {name: list(rows.values()) for name, rows in rows_by_stream.items()}


def schemas_of(stream: str) -> dict[str, Json]:
    """Return type@version → JSON schema, for the latest schema of every event of a run's kind."""
    kind = kinds.kind_of(stream)
    assert kind
    return {
        f"{name}@{cls.schema_version}": cls.model_json_schema()
        for name, cls in kind.state.registry.types().items()
    }


@dataclass(frozen=True)
class ImportResult:
    """The result of an import."""

    run: str
    #: Run → number of events that were not here yet.
    new: dict[str, int]
    weights: int
    #: Runs that can go on: they wait to be resumed, and belong to the importer.
    waiting: list[str]
    #: The waiting runs that had failed: they need a retry, too.
    failed: list[str]


def export(
    store: EventStore, cache: Artifacts, run: str, path: Path, weights: bool, replace: bool
) -> dict[str, int]:
    """Write a run's archive; return stream → number of its events.

    The run and its children are as they were at one position of the log, the newest. Raises
    ConfigError, ConflictError, UnavailableError.
    """
    run = full_name(store, run)
    try:
        odd = path.is_symlink() or (path.exists() and not path.is_file())
    except OSError as error:
        raise ConfigError(f"{str(path)[:60]} is no name for a file: {error.strerror}.") from error
    if odd:
        raise ConflictError(f"{path} is no ordinary file. Choose another name.")
    if path.exists() and not replace:
        raise ConflictError(f"{path} exists already. Choose another name, or give --force.")
    streams = streams_of(store, run, store.end())
    state, _ = opened(ArchivedLog(streams), run)
    kind = kinds.of(state.kind)
    blobs = kind.storage.result_files(state, cache) if weights else []
    result = kind.models.result(state)
    notes = {"run": run, "result": result and result.digest, "written_by": CODE_VERSION}
    schemas = schemas_of(state.stream)
    try:
        archive.write(path, streams, schemas, notes, blobs)
    except OSError as error:
        raise UnavailableError(
            f"{path} cannot be written: {error.strerror}. Free space or choose another place."
        ) from error
    return {name: len(rows) for name, rows in streams.items()}


def load(
    store: EventStore, cache: Artifacts, path: Path, by: str | None = None, task_files: bool = False
) -> ImportResult:
    """Import a run from an archive, but for events already here; return an ImportResult of what is new.

    `task_files` allows a run that measures with task files of lm-evaluation-harness, which are code.

    Nothing is recorded before the whole archive is verified. A run that can still go on belongs to
    `by`, or to the user of this process, and waits until it is resumed, and so do its children: a
    stranger's archive starts no work here. A run that comes only as the past of a fork waits too, and a
    later import may extend its history. Raises ArchiveError, ConfigError for task files that are not
    allowed, ConflictError if a run of that name here has another history, NotFoundError,
    UnavailableError.
    """
    who = by or actor()
    with tempfile.TemporaryDirectory() as folder:
        content = archive.read(path, Path(folder))
        run, rows = _history(path, content)
        states = _with_children(path, content, run, rows)
        for state in [] if task_files else states:
            for refused in _task_files(state):
                raise ConfigError(refused.message)
        check_weights(path, content.blobs, Path(folder), states[0])
        import_events = {name: _taken(content, name, who) for name in content.streams}
        fresh = _each(content, store.fits)
        names = dict.fromkeys(Path(blob).parts[0] for blob in content.blobs)
        places = [Path(folder) / name for name in names]
        for place in places:
            cache.adopt(place, states[0].making_seconds(place.name))
        context = Cause(actor=who)
        whole = {state.stream for state in states}
        for name, rows in content.streams.items():
            if name not in whole and import_events[name] and fresh[run_of_stream(name)]:
                repository.note(store, run_of_stream(name), rows[-1].hash, context)
        whole_events = {name: import_events[name] for name in whole}
        new = _each(
            content, lambda name, rows: store.adopt(name, rows, whole_events.get(name, ()), context)
        )
        project(store)
    waiting = [state for state in states if import_events[state.stream] and new[state.run]]
    if waiting and waiting[0].run == run:  # what is asked of it is asked of its children, too
        waiting = waiting[:1]
    failed = [state.run for state in waiting if state.failed]
    return ImportResult(run, new, len(places), [state.run for state in waiting], failed)


def _sound(path: Path, run: str, rows: list[Envelope]) -> State:
    """Return the state after a history. Raises ArchiveError if the audit finds an error in it."""
    for wrong in audit(rows):
        if wrong.level != "note":
            raise ArchiveError(str(path), f"at event {wrong.place} of run {run}", wrong.message)
    return fold(rows)


def _with_children(path: Path, content: archive.Archive, run: str, rows: list[Envelope]) -> list[State]:
    """Return the states of a run and of its children. Raises ArchiveError if one is faulty."""
    state = _sound(path, run, rows)
    children = [_sound(path, child, child_rows) for child, child_rows in _children(path, content, run)]
    for wrong in run_children.check(ArchivedLog(content.streams), state):
        raise ArchiveError(str(path), "in its manifest", wrong.message)
    return [state, *children]


def _task_files(state: State) -> list[Finding]:
    """Return a finding if the run measures with a task file, which can run code; else an empty list."""
    data_files = getattr(state.submitted, "data", ())
    files = [
        spec.file
        for spec in map(lm_eval_spec.parse, filter(lm_eval_spec.is_task, data_files))
        if spec.file
    ]
    why = (
        f"run {state.run} measures with the task file {str(file)!r} of this machine, and a task file "
        "can run code. Look at the file; then import the run with --allow-task-files."
        for file in files[:1]
    )
    return [Finding("unchecked", "files", message) for message in why]


def _each(content: archive.Archive, take: Callable[[str, list[Envelope]], int]) -> dict[str, int]:
    """Call `take` for each stream, the archive's own run last; return run → its result.

    An import that was cut off between two streams has not brought the run yet, so that no process
    begins a child of it in the place of the archive's. Raises ConflictError if a stream does not fit
    the history that is here.
    """
    new: dict[str, int] = {}
    main_run = content.manifest.get("run")
    for name, rows in sorted(
        content.streams.items(), key=lambda stream: run_of_stream(stream[0]) == main_run
    ):
        try:
            new[run_of_stream(name)] = take(name, rows)
        except ChainError as error:
            raise ConflictError(
                f"run {run_of_stream(name)} is here already and has another history from event "
                f"{error.version} on: the archive was not imported."
            ) from error
    return new


def _taken(content: archive.Archive, name: str, who: str) -> list[New]:
    """Return the event that gives a run to the importer and lets it wait, in a list.

    The list is empty if the run is completed or cancelled.
    """
    run = run_of_stream(name)
    state, _ = opened(ArchivedLog(content.streams), run)
    event = events.Imported(owner=who, head=state.head)
    if refusal(state, event) is not None:
        return []
    return [New(event, f"{run}/{event.type}/{state.head}")]


def _history(path: Path, content: archive.Archive) -> tuple[str, list[Envelope]]:
    """Return (archive's run, its history). Raises ArchiveError if a stream belongs to no run."""
    run = run_of(content)
    for name in content.streams:
        if not kinds.is_run(name) or NAME.fullmatch(run_of_stream(name)) is None:
            why = f"it holds the stream {name[:100]!r}, which is no run's"
            raise ArchiveError(str(path), "in its manifest", why)
    return run, list(history(ArchivedLog(content.streams), run))


def _children(path: Path, content: archive.Archive, run: str) -> list[tuple[str, list[Envelope]]]:
    """Return (run, rows) of each child of a run whose own history is sound.

    Raises ArchiveError if the archive has anything that is not part of these histories.
    """
    log = ArchivedLog(content.streams)
    needed = streams_of(log, run)
    for name, stream_rows in content.streams.items():
        if len(needed.get(name, ())) != len(stream_rows):
            why = f"it holds events of {run_of_stream(name)} that are no part of run {run}'s history"
            raise ArchiveError(str(path), "in its manifest", why)
    return [child for child in run_children.histories(log, run) if child[0] != run and child[1]]


def check_weights(path: Path, blobs: tuple[str, ...], folder: Path, state: State) -> None:
    """Raise ArchiveError unless `blobs`, files' names, are a result's weights, of its digest."""
    kind = kinds.of(state.kind)
    models = [*kind.results(state).values()] if blobs and state.completed else []
    result = kind.models.result(state) if blobs else None
    digests = {model.digest for model in (*models, *([result] if result else []))}
    for blob in blobs:
        at, _, name = blob.partition("/")
        if at not in digests or "/" in name or not name.endswith(".safetensors"):
            raise ArchiveError(str(path), f"at blobs/{blob[:100]}", "it is no file of the run's result")
    for at in dict.fromkeys(blob.partition("/")[0] for blob in blobs):
        if read_weights(folder / at, at) is None:
            what = "the weights are not those that the log has the digest of"
            raise ArchiveError(str(path), f"at blobs/{at}", what)


def inspected(path: Path) -> tuple[str, list[Envelope], list[Finding]]:
    """Return (an archive's run, its history, findings); no database is needed.

    The findings cover all reasons for which an import refuses the archive itself. They do not cover a
    run of that name here with another history, or a full disk. Raises ArchiveError if the archive
    cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        content = archive.read(path, Path(folder))
        run, rows = _history(path, content)
        findings = audit(rows)
        if all(finding.level == "note" for finding in findings):
            children = _children(path, content, run)
            findings += [
                _of(name, finding) for name, child_rows in children for finding in audit(child_rows)
            ]
        if all(finding.level == "note" for finding in findings):
            state = fold(rows)
            findings += run_children.check(ArchivedLog(content.streams), state)
            check_weights(path, content.blobs, Path(folder), state)
            states = [state, *(fold(child_rows) for _, child_rows in children)]
            findings += [finding for each in states for finding in _task_files(each)]
    return run, rows, findings


def _of(run: str, finding: Finding) -> Finding:
    return replace(finding, message=f"run {run}: {finding.message}")
