"""Runs in the log: finding them, and reading their histories. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from events import Envelope
from runs import kinds
from runs.errors import AmbiguousError, ConfigError, NotFoundError, TamperedError
from runs.kinds.state import State, fold_into
from runs.record.events import Forked, Submitted
from runs.streams import run_of, stream


class Log(Protocol):
    """The part of a log that is read here: of an event store, or of an archive."""

    def version(self, stream: str) -> int:
        """Return the stream's version; 0 if the stream is missing."""
        ...

    def iterate(self, stream: str, after: int = 0, upto: int | None = None) -> Iterator[Envelope]:
        """Yield the stream's rows in order: after version `after`, up to version `upto`."""
        ...

    def streams(self, prefix: str = "") -> list[Envelope]:
        """Return the first row of every stream whose name starts with `prefix`."""
        ...

    def holder(self, *keys: str) -> str | None:
        """Return the name of the stream that has an event under one of these keys, or None."""
        ...


def first_keys(run: str) -> tuple[str, str]:
    """Return the keys of which one is that of a run's first event, unique in the whole log."""
    return f"{run}/{Submitted.type}", f"{run}/{Forked.type}"


def stream_of(log: Log, run: str) -> str | None:
    """Return the stream of the run of this whole name, or None.

    A run's name is unique over all kinds: its first event's key is.
    """
    run_stream = log.holder(*first_keys(run))
    if run_stream is not None and kinds.is_run(run_stream) and run_of(run_stream) == run:
        return run_stream
    # The first event of a forged history may stand under another key: `forge verify` must find it.
    return next((name for kind in kinds.table() if log.version(name := stream(kind, run))), None)


def named_stream(log: Log, run: str) -> str:
    """Return the stream of the run of this whole name. Raises NotFoundError."""
    run_stream = stream_of(log, run)
    if run_stream is None:
        raise NotFoundError(f"run {run!r} is not known. List the runs with `forge runs`.")
    return run_stream


def full_name(log: Log, run: str) -> str:
    """Return the id of the run that an id or the beginning of an id means.

    Raises NotFoundError, and AmbiguousError if several ids begin so.
    """
    if stream_of(log, run) is not None:
        return run
    names = [run_of(row.stream) for row in log.streams() if kinds.is_run(row.stream)]
    alike = [name for name in names if run and name.startswith(run)]
    shortest = min(alike, key=len, default="")
    if alike and all(name == shortest or name.startswith(f"{shortest}.") for name in alike):
        return shortest  # the others are runs that it asked for
    if alike:
        several = ", ".join(alike[:5])
        raise AmbiguousError(f"run {run!r} is not known; it is the beginning of {several}.")
    hint = f"runs here: {', '.join(names[-5:])}" if names else "there are no runs here"
    raise NotFoundError(f"run {run!r} is not known; {hint}. List them with `forge runs`.")


def history(
    log: Log, run: str, upto: int | None = None, _forks: tuple[str, ...] = ()
) -> Iterator[Envelope]:
    """Yield every event of a run in order; a fork's past, from other streams, comes first.

    `upto` is a version of the run's own stream; the past is always whole. Raises TamperedError if
    the past is not the one that was forked. A run that is not known has no events.
    """
    run_stream = stream_of(log, run)
    if run_stream is None:
        return
    first = list(log.iterate(run_stream, upto=1))
    if first and first[0].type == Forked.type:
        kind = kinds.kind_of(run_stream)
        assert kind
        fork: Any = kind.state.registry.load(first[0])
        row = None
        forks = (*_forks, run)
        past = () if fork.parent in forks else history(log, fork.parent, fork.version, forks)
        for row in past:
            yield row
        if row is None or (row.version, row.hash) != (fork.version, fork.head):
            raise TamperedError(
                f"run {run} was forked from run {fork.parent} at its event {fork.version}, which is "
                f"not there as it was: the history of {fork.parent} was changed. Restore it, or "
                f"import an archive of {run}."
            )
    yield from log.iterate(run_stream, upto=upto)


def empty(name: str) -> State:
    """Return the state of a run of the stream's kind before its first event.

    Raises NotFoundError if the stream is no run's.
    """
    kind = kinds.kind_of(name)
    if kind is None:
        raise NotFoundError(f"{name!r} is not the stream of a run that this program knows.")
    return kind.state()


def fold(rows: list[Envelope], showing: bool = False) -> Any:
    """Return the state after these rows, one history of any kind of run from its first event."""
    return fold_into(empty(rows[0].stream), rows, showing)


def news(log: Log, state: State) -> list[Envelope]:
    """Return the events of the state's run that the state has not seen yet."""
    return list(log.iterate(state.stream, after=state.version))


def opened(log: Log, run: str, showing: bool = False) -> tuple[Any, list[Envelope]]:
    """Return a run's state and its whole history, by the run's whole name. Raises NotFoundError.

    `showing` skips events that a newer version wrote; nothing may be decided from such a state.
    """
    rows = list(history(log, run))
    if not rows:
        named_stream(log, run)  # raises
    return fold(rows, showing), rows


def load(log: Log, run: str, showing: bool = False) -> Any:
    """Return the state of a run, by its id or the beginning of it. Raises NotFoundError.

    `showing` skips events that a newer version wrote; nothing may be decided from such a state.
    """
    return opened(log, full_name(log, run), showing)[0]


def load_of(kind: type[Any], log: Log, run: str, showing: bool = False) -> Any:
    """Return the state of a run, which must be of a kind's class of states.

    Raises ConfigError for a run of another kind, and what `load` raises.
    """
    state = load(log, run, showing)
    if not isinstance(state, kind):
        title = kinds.of(kind.kind).title
        raise ConfigError(f"run {state.run} is {kinds.of(state.kind).title}: this needs {title}.")
    return state
