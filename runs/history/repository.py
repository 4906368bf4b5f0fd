"""Runs in the log: finding them, reading their histories, and cutting a history at a place. No torch.

A place is the number of events before it: place 0 is before `submitted`, place 57 after the 57th
event. Events are counted from the first, those before a fork included. Events appended together belong
together: a history is cut between appends only, since no run was ever in a state between them. The
second and later events of an append name its first event as their cause.

Of a run that came in an archive only as the past of a fork, this log has the archive's rows and no
later ones, so that another archive may bring the rest. Such a run waits: a separate stream notes the
event at which the run ends here, and while that event is the run's newest, no worker continues the
run. A user's first request to the run makes that user its owner (`imported`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from agent_forge.events import Cause, Envelope, Event, EventStore, New, Registry, UnknownEventError
from agent_forge.events.envelope import Json
from agent_forge.runs import kinds
from agent_forge.runs.errors import AmbiguousError, ConfigError, NotFoundError, TamperedError
from agent_forge.runs.kinds.decide import Task, open_tasks
from agent_forge.runs.kinds.state import State, fold_into
from agent_forge.runs.record.events import Forked, Submitted
from agent_forge.runs.streams import run_of, stream

S = TypeVar("S", bound=State)


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


def stream_of(log: Log, run: str) -> str | None:
    """Return the name of the stream of a run, by the run's whole name; None if there is no such run.

    A run's name is unique over all kinds, because its first event's key is.
    """
    run_stream = log.holder(f"{run}/{Submitted.type}", f"{run}/{Forked.type}")
    if run_stream is not None and kinds.is_run(run_stream) and run_of(run_stream) == run:
        return run_stream
    # The first event of a forged history may stand under another key: `forge verify` must find it.
    return next((name for kind in kinds.table() if log.version(name := stream(kind, run))), None)


def named_stream(log: Log, run: str) -> str:
    """Return the name of the stream of a run, by the run's whole name. Raises NotFoundError."""
    run_stream = stream_of(log, run)
    if run_stream is None:
        raise NotFoundError(f"run {run!r} is not known. List the runs with `forge runs`.")
    return run_stream


def full_name(log: Log, run: str) -> str:
    """Return the id of the run with this (beginning of an) id. Raises NotFoundError, AmbiguousError."""
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
        fork = kind.state.registry.load(first[0])
        assert isinstance(fork, Forked)
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
    """Return the state, before any event, of a run of the stream's kind. Raises NotFoundError.

    NotFoundError: the stream is not that of a run.
    """
    kind = kinds.kind_of(name)
    if kind is None:
        raise NotFoundError(f"{name!r} is not the stream of a run that this program knows.")
    return kind.state()


def fold(rows: list[Envelope], showing: bool = False) -> Any:
    """Return the state after these rows, a run's history; `showing` skips events of newer versions."""
    return fold_into(empty(rows[0].stream), rows, showing)


def news(log: Log, state: State) -> list[Envelope]:
    """Return the events of the state's run that the state has not seen yet."""
    return list(log.iterate(state.stream, after=state.version))


def opened(log: Log, run: str, showing: bool = False) -> tuple[State, list[Envelope]]:
    """Return (state, rows of the whole history) of a run, by its whole name. Raises NotFoundError.

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


def load_of(kind: type[S], log: Log, run: str, showing: bool = False) -> S:
    """Return the state of a run, which must be of a kind's class of states.

    Raises ConfigError for a run of another kind, and what `load` raises.
    """
    state = load(log, run, showing)
    if not isinstance(state, kind):
        title = kinds.of(kind.kind).title
        raise ConfigError(f"run {state.run} is {kinds.of(state.kind).title}: this needs {title}.")
    return state


#: Numbers below it count as zero.
TINY = 1e-12


def measurements(rows: Sequence[Envelope]) -> Iterator[tuple[Task, Event]]:
    """Yield (task, recorded answer) of all that a run has measured, in the order of its history.

    The rows are those of a history that the audit finds nothing wrong with.
    """
    kind, state = kinds.kind_of(rows[-1].stream), empty(rows[-1].stream)
    assert kind is not None
    for group in appends(rows):
        event = state.registry.load(group[0])
        if isinstance(event, kind.verification.remeasured):
            key = group[0].key.partition("/")[2]
            yield next(task for task in open_tasks(state) if task.key == key), event
        state.absorb(group)


def about(task: Task) -> str | None:
    """Return the recipe id of the model that a task measures; None if it is about several."""
    recipe = getattr(task, "recipe", None)
    return recipe.id if recipe is not None else getattr(task, "recipe_id", None)


def words(task: Task) -> str:
    """Return a task's key for messages: each digest in it is cut to 12 digits."""
    return re.sub("[0-9a-f]{64}", lambda digest: digest[0][:12], task.key)


def difference(recorded: Json, again: Json) -> float | None:
    """Return the largest relative difference of numbers in two JSON values; None if more differs.

    The relative difference of a and b is |a − b| / max(|a|, |b|).
    """
    if isinstance(recorded, bool) or isinstance(again, bool):
        return 0.0 if recorded is again else None
    if isinstance(recorded, int | float) and isinstance(again, int | float):
        return abs(recorded - again) / max(abs(recorded), abs(again), TINY)
    if isinstance(recorded, Mapping) and isinstance(again, Mapping):
        if recorded.keys() != again.keys():
            return None
        pairs = [(recorded[key], again[key]) for key in recorded]
    elif isinstance(recorded, list) and isinstance(again, list):
        if len(recorded) != len(again):
            return None
        pairs = list(zip(recorded, again, strict=True))
    else:
        return 0.0 if recorded == again else None
    largest = 0.0
    for recorded_value, other in pairs:
        if (gap := difference(recorded_value, other)) is None:
            return None
        largest = max(largest, gap)
    return largest


@dataclass(frozen=True)
class HistoryReference:
    """A reference to a history: RUN, RUN@57 (a place) or RUN@g3 (the end of a generation)."""

    run: str
    place: int | None = None
    generation: int | None = None

    @classmethod
    def parse(cls, text: str) -> HistoryReference:
        """Return the reference that a user's text means: RUN, RUN@57, RUN@g3. Raises ConfigError."""
        run, at, where = text.partition("@")
        match = re.fullmatch(r"(g?)(\d+)", where)
        if not run or (at and not match):
            raise ConfigError(
                f"{text!r} names no place: write RUN, RUN@57 (after event 57) or RUN@g3 (after "
                "generation 3)."
            )
        if match is None:
            return cls(run)
        number = int(match[2])
        return cls(run, generation=number) if match[1] else cls(run, place=number)


#: Types of events whose cause may be in another stream; other events with a cause begin no append.
_ALONE = ("submitted",)


def inside(row: Envelope) -> bool:
    """Return True if the row was appended together with the row before it."""
    return row.causation is not None and row.type not in _ALONE


def end_of_append(rows: Sequence[Envelope], index: int) -> int:
    """Return the index behind the last row of the append that begins with the row at `index`."""
    first = rows[index].event_id
    index += 1
    while index < len(rows) and rows[index].causation == first:
        index += 1
    return index


def appends(rows: Sequence[Envelope]) -> list[Sequence[Envelope]]:
    """Return the rows in groups, one group for each append."""
    groups: list[Sequence[Envelope]] = []
    start = 0
    while start < len(rows):
        end = end_of_append(rows, start)
        groups.append(rows[start:end])
        start = end
    return groups


def at_place(rows: Sequence[Envelope], place: int) -> int:
    """Return `place` as it is. Raises NotFoundError or ConfigError if no history can be cut there."""
    if not 0 < place <= len(rows):
        raise NotFoundError(f"there is no event {place}: the history has events 1 to {len(rows)}.")
    start = place - 1
    cause = rows[start].causation
    if cause is not None:
        start = next((i for i, row in enumerate(rows[:place]) if row.event_id == cause), start)
    end = end_of_append(rows, start)
    if place < end:
        raise ConfigError(
            f"event {place} is in the middle of one append, events {start + 1} to {end}, which "
            f"belong together: take {start} or {end}."
        )
    return place


def cut(rows: Sequence[Envelope], reference: HistoryReference) -> Sequence[Envelope]:
    """Return the rows up to a reference's place or generation; all for neither. Raises ForgeError."""
    if reference.generation is not None and rows:
        kind = kinds.kind_of(rows[0].stream)
        assert kind
        return rows[: kind.forks.end_of(rows, reference.generation)]
    return rows if reference.place is None else rows[: at_place(rows, reference.place)]


REGISTRY = Registry()

STREAM = "pasts"


@REGISTRY.event
class PastImported(Event):
    """An archive brought the beginning of a run, as the past of a fork."""

    type = "past_imported"

    run: str
    #: Hash of the run's last event that came.
    head: str


def note(store: EventStore, run: str, head: str, context: Cause) -> None:
    """Record, before a run's rows come, that they end at hash `head`: they are only a fork's past."""
    new = New(PastImported(run=run, head=head), f"{STREAM}/{run}/{head}")
    store.append(STREAM, None, [new], context)


def heads(store: EventStore) -> frozenset[str]:
    """Return the set of last events' hashes of the runs that were imported only as a fork's past."""
    hashes = set[str]()
    for row in store.iterate(STREAM):
        try:
            event = REGISTRY.load(row)
        except UnknownEventError:
            continue
        if isinstance(event, PastImported):
            hashes.add(event.head)
    return frozenset(hashes)
