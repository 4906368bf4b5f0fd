"""Runs that are tasks of another run: their histories, and whether their ends are as recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from events import Envelope, EventsError
from runs import kinds
from runs.errors import ForgeError
from runs.history import reuse
from runs.history.audit import Finding
from runs.history.repository import Log, fold, history, named_stream, opened
from runs.record.events import ChildEnded


def histories(log: Log, run: str) -> Iterator[tuple[str, list[Envelope]]]:
    """Yield (run, rows) of a run and of its children that have completed.

    Of a child there are the rows up to its end. Raises NotFoundError, TamperedError.
    """
    state, rows = opened(log, run)
    yield run, rows
    for _, ended in kinds.of(state.kind).children(state):
        yield ended.child, list(history(log, ended.child, ended.child_version))


def cause(log: Log, state: Any) -> str:
    """Return the id of the first event in a run's own stream: the cause of its children."""
    return next(iter(log.iterate(state.stream, upto=1))).event_id


def is_child(log: Log, state: Any, run: str) -> bool:
    """Return True if the run of this whole name was asked for by the run of the state."""
    first = next(iter(log.iterate(named_stream(log, run), upto=1)))
    return first.causation == cause(log, state)


def check(log: Log, state: Any) -> Iterator[Finding]:
    """Yield an error for each child that is not as the parent's log says that it ended."""
    kind = kinds.of(state.kind)
    for task, ended in kind.children(state):
        try:
            rows = list(history(log, ended.child, ended.child_version))
            wrong = _unlike(rows, ended) or _other(kind, state, task, ended, rows)
        except (ForgeError, EventsError) as error:
            wrong = f"its history cannot be read: {error}"
        if wrong:
            yield Finding("error", "children", f"run {ended.child}: {wrong}")


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
    told = kind.returned(state, task, child).model_copy(update={"reused": ended.reused})
    if told == ended:
        return None
    names = type(ended).model_fields
    fields = [name for name in names if getattr(told, name, None) != getattr(ended, name)]
    return f"the recorded end says another {', '.join(fields) or 'end'} than the run itself"
