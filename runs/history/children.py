"""Runs that are tasks of another run: their histories, and whether their ends are as recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from events import Envelope, EventsError
from runs import kinds
from runs.errors import ForgeError, NotFoundError
from runs.history import reuse
from runs.history.audit import Finding
from runs.history.repository import Log, fold, history, named_stream, opened, stream_of
from runs.kinds.asked import Asked
from runs.kinds.decide import open_tasks
from runs.kinds.tasks import Delegate
from runs.record.events import ChildEnded


def histories(
    log: Log, run: str, position: int | None = None
) -> Iterator[tuple[str, list[Envelope]]]:
    """Yield (run, rows) of a run and of its children, as they were at a position of the log.

    None: as they are now. Of a child that has completed there are the rows up to its end, and of
    every other child all rows up to the position. Raises NotFoundError, TamperedError.
    """
    rows = _until(history(log, run), position)
    if not rows:
        named_stream(log, run)  # raises
        raise NotFoundError(f"run {run} had not begun at position {position} of the log.")
    state = fold(rows)
    yield run, rows
    ends: dict[str, int] = {}
    for _, end in kinds.of(state.kind).children(state):
        ends[end.child] = max(end.child_version, ends.get(end.child, 0))
    for child in delegated(log, state).values():
        if child in ends:
            yield child, list(history(log, child, ends[child]))
        elif child_rows := _until(history(log, child), position):
            yield child, child_rows


def _until(rows: Iterable[Envelope], position: int | None) -> list[Envelope]:
    return [row for row in rows if position is None or row.position <= position]


def delegated(log: Log, state: Any) -> dict[str, str]:
    """Return task → run of the children that the log has: each once, under its last task.

    The children are the runs whose end the state has recorded, and those that its open tasks have
    begun. A run of a child's name that is no child is left out.
    """
    if not kinds.of(state.kind).delegates:
        return {}
    tasks_by_run = {event.child: key for key, event in _ends(state)}
    if state.submitted is not None and not state.skipped:
        for task in open_tasks(state):
            if isinstance(task, Delegate) and _is_known_child(log, state, task.run):
                tasks_by_run.pop(task.run, None)
                tasks_by_run[task.run] = task.key
    runs = (run for run in tasks_by_run if stream_of(log, run) is not None)
    return {tasks_by_run[run]: run for run in runs}


def _is_known_child(log: Log, state: Any, run: str) -> bool:
    return stream_of(log, run) is not None and is_child(log, state, run)


def _ends(state: Any) -> list[tuple[str, ChildEnded]]:
    """Return (task, answer) of the children whose end a run has recorded, with or without a result."""
    answers = state.answers.items()
    return [(key, e) for key, e in answers if isinstance(e, ChildEnded) and e.child_version]


def cause(log: Log, state: Any) -> str:
    """Return the id of the first event in a run's own stream: the cause of its children."""
    return next(iter(log.iterate(state.stream, upto=1))).event_id


def is_child(log: Log, state: Any, run: str) -> bool:
    """Return True if the run of this whole name was asked for by the run of the state."""
    first = next(iter(log.iterate(named_stream(log, run), upto=1)))
    return first.causation == cause(log, state)


def check(log: Log, state: Any) -> Iterator[Finding]:
    """Yield an error for each child that is not as the parent's log says.

    A child that the parent says has ended must be there. One that has not ended may be missing: its
    task then begins it.
    """
    kind = kinds.of(state.kind)
    completed = set[str]()
    for task, ended in kind.children(state):
        completed.add(ended.child)
        yield from _checked(log, ended.child, partial(_other_end, log, kind, state, task, ended))
    for _, ended in _ends(state):
        if ended.child not in completed:
            yield from _checked(log, ended.child, partial(_other_rows, log, ended))
    for key, run in delegated(log, state).items():
        if run not in completed:
            yield from _checked(log, run, partial(_other_child, log, kind, state, key, run))


def _checked(log: Log, run: str, wrong: Callable[[], str | None]) -> Iterator[Finding]:
    """Yield an error with what `wrong` returns about a child, or with why its history is unreadable."""
    try:
        problem = wrong()
    except (ForgeError, EventsError) as error:
        problem = f"its history cannot be read: {error}"
    if problem:
        yield Finding("error", "children", f"run {run}: {problem}")


def _other_rows(log: Log, ended: ChildEnded) -> str | None:
    return _unlike(list(history(log, ended.child, ended.child_version)), ended)


def _other_end(log: Log, kind: Any, state: Any, task: Any, ended: ChildEnded) -> str | None:
    """Return why a completed child is another than the recorded one; None if it is that one."""
    rows = list(history(log, ended.child, ended.child_version))
    return _unlike(rows, ended) or _other(kind, state, task, ended, rows)


def _other_child(log: Log, kind: Any, state: Any, key: str, run: str) -> str | None:
    """Return why a child without a result is not what its task asks for; None if it is."""
    return kind.asked_otherwise(state, Delegate(key, run, Asked("")), opened(log, run)[0])


def _unlike(rows: list[Envelope], ended: ChildEnded) -> str | None:
    """Return why a child's history does not end where its parent says; None if it does."""
    if not rows:
        return "it is not in this log"
    if rows[-1].version != ended.child_version:
        return (
            f"it has {rows[-1].version} events, and had {ended.child_version}: its end is cut off"
        )
    return None if rows[-1].hash == ended.child_head else "it has another history than it had"


def _other(kind: Any, state: Any, task: Any, ended: ChildEnded, rows: list[Envelope]) -> str | None:
    """Return why a child is another than the recorded one; None if it is that one."""
    child = fold(rows)
    if ended.reused and (why := reuse.wrong(rows, child, ended.reused)):
        return why
    if ended.reused and (why := kind.unlike(state, task, child)):
        return f"it was taken for a run that it is not equal to: {why}"
    if why := kind.asked_otherwise(state, task, child):
        return why
    event = kind.returned(state, task, child).model_copy(update={"reused": ended.reused})
    if event == ended:
        return None
    names = type(ended).model_fields
    fields = [name for name in names if getattr(event, name, None) != getattr(ended, name)]
    return f"the recorded end says another {', '.join(fields) or 'end'} than the run itself"
