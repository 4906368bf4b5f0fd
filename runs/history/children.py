"""Runs that are tasks of another run: their histories, recorded ends, and reuse of equal runs.

Two runs are equal if they are of one kind and have the same settings, the same pinned inputs (weights,
companions, data and profile, as `started` has them) and the same version of the program. `identity` is
the digest of all that; it is pure. Operations have versions of their own; they stand in tasks and
recipes, which an audit of the reused run derives again with the present program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from agent_forge.events import Envelope, EventsError, canonical_json
from agent_forge.runs import kinds
from agent_forge.runs.errors import ForgeError, NotFoundError
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.history.repository import Log, fold, history, named_stream, opened, stream_of
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.runs.kinds.children import AnyChildren, completed_children
from agent_forge.runs.kinds.decide import Delegate, open_tasks
from agent_forge.runs.kinds.state import State
from agent_forge.runs.record import events, lineage
from agent_forge.runs.record.device_setting import with_device
from agent_forge.runs.record.events import ChildEnded, Submitted


def histories(log: Log, run: str, position: int | None = None) -> Iterator[tuple[str, list[Envelope]]]:
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
    for _, end in completed_children(state):
        ends[end.child] = max(end.child_version, ends.get(end.child, 0))
    for child in delegated(log, state).values():
        if child in ends:
            yield child, list(history(log, child, ends[child]))
        elif child_rows := _until(history(log, child), position):
            yield child, child_rows


def _until(rows: Iterable[Envelope], position: int | None) -> list[Envelope]:
    return [row for row in rows if position is None or row.position <= position]


def delegated(log: Log, state: State) -> dict[str, str]:
    """Return task key → name of the child run, of the children that the log has; each child once.

    A child of several tasks stands under the last one.
    The children are the runs whose end the state has recorded, and those that its open tasks have
    begun. A run of a child's name that is no child is left out.
    """
    if kinds.of(state.kind).children is None:
        return {}
    tasks_by_run = {event.child: key for key, event in _ends(state)}
    if state.submitted is not None and not state.skipped:
        for task in open_tasks(state):
            if not isinstance(task, Delegate) or stream_of(log, task.run) is None:
                continue
            if is_child(log, state, task.run):
                tasks_by_run.pop(task.run, None)
                tasks_by_run[task.run] = task.key
    runs = (run for run in tasks_by_run if stream_of(log, run) is not None)
    return {tasks_by_run[run]: run for run in runs}


def _ends(state: State) -> list[tuple[str, ChildEnded]]:
    """Return [(task key, answer)] of children whose end a run has recorded, even without a result."""
    answers = state.answers.items()
    return [(key, e) for key, e in answers if isinstance(e, ChildEnded) and e.child_version]


def cause(log: Log, state: State) -> str:
    """Return the id of the first event in a run's own stream: the cause of its children."""
    return next(iter(log.iterate(state.stream, upto=1))).event_id


def is_child(log: Log, state: State, run: str) -> bool:
    """Return True if the run of this whole name was asked for by the run of the state."""
    first = next(iter(log.iterate(named_stream(log, run), upto=1)))
    return first.causation == cause(log, state)


def check(log: Log, state: State) -> Iterator[Finding]:
    """Yield an error for each child run that is not as the events of its parent say.

    A child that has ended, as the parent says, must be in the log. A child that has not ended may be
    missing: its task then begins it.
    """
    children = kinds.of(state.kind).children
    if children is None:
        return
    completed = set[str]()
    for task, ended in children.completed(state):
        completed.add(ended.child)
        yield from _checked(log, ended.child, partial(_other_end, log, children, state, task, ended))
    for _, ended in _ends(state):
        if ended.child not in completed:
            yield from _checked(log, ended.child, partial(_other_rows, log, ended))
    for key, run in delegated(log, state).items():
        if run not in completed:
            yield from _checked(log, run, partial(_other_child, log, children, state, key, run))


def _checked(log: Log, run: str, wrong: Callable[[], str | None]) -> Iterator[Finding]:
    """Yield one error if `wrong` returns a reason or the child's history cannot be read."""
    try:
        problem = wrong()
    except (ForgeError, EventsError) as error:
        problem = f"its history cannot be read: {error}"
    if problem:
        yield Finding("error", "children", f"run {run}: {problem}")


def _other_rows(log: Log, ended: ChildEnded) -> str | None:
    return _unlike(list(history(log, ended.child, ended.child_version)), ended)


def _other_end(
    log: Log, children: AnyChildren, state: State, task: Delegate, ended: ChildEnded
) -> str | None:
    """Return why a completed child is another than the recorded one; None if it is that one."""
    rows = list(history(log, ended.child, ended.child_version))
    return _unlike(rows, ended) or _other(children, state, task, ended, rows)


def _other_child(log: Log, children: AnyChildren, state: State, key: str, run: str) -> str | None:
    """Return why a child without a result is not what its task asks for; None if it is."""
    return children.asked_otherwise(state, Delegate(key, run, RunRequest("")), opened(log, run)[0])


def _unlike(rows: list[Envelope], ended: ChildEnded) -> str | None:
    """Return why a child's history does not end where its parent says; None if it does."""
    if not rows:
        return "it is not in this log"
    if rows[-1].version != ended.child_version:
        return f"it has {rows[-1].version} events, and had {ended.child_version}: its end is cut off"
    return None if rows[-1].hash == ended.child_head else "it has another history than it had"


def _other(
    children: AnyChildren, state: State, task: Delegate, ended: ChildEnded, rows: list[Envelope]
) -> str | None:
    """Return why a child is another than the recorded one; None if it is that one."""
    child = fold(rows)
    if ended.reused and (why := wrong(rows, child, ended.reused)):
        return why
    if ended.reused and (why := children.unlike(state, task, child)):
        return f"it was taken for a run that it is not equal to: {why}"
    if why := children.asked_otherwise(state, task, child):
        return why
    event = children.returned(state, task, child).model_copy(update={"reused": ended.reused})
    if event == ended:
        return None
    names = type(ended).model_fields
    fields = [name for name in names if getattr(event, name, None) != getattr(ended, name)]
    return f"the recorded end says another {', '.join(fields) or 'end'} than the run itself"


#: Type of an event → why the result of a run with such an event cannot be reused.
_UNFIT = {
    events.Forked.type: "it is a fork: other settings may have decided a part of it",
    events.TaskQuarantined.type: "a task of it was given up",
    events.DivergenceDetected.type: "a task of it gave two results",
}


#: Settings that may end a run by the clock: its result then depends on how busy the machine was.
_BY_THE_CLOCK = ("max_hours", "max_device_hours", "budget_hours")


def identity(state: State, version: str) -> str:
    """Return the SHA-256, in hex, of a run's kind, program `version`, settings and pinned inputs."""
    settings = with_device(state.submitted.config.model_dump(mode="json"), state.device)
    whole = [state.kind, version, settings, kinds.of(state.kind).verification.pins(state)]
    return hashlib.sha256(canonical_json(whole).encode()).hexdigest()


def unfit(rows: Sequence[Envelope]) -> str | None:
    """Return the reason why no equal run can reuse a run's result; None if one can."""
    ends = [place for place, row in enumerate(rows, start=1) if row.type == events.Completed.type]
    if not ends:
        return "it has not completed"
    reasons = (_UNFIT[row.type] for row in rows if row.type in _UNFIT)
    several = len({row.code_version for row in rows[: ends[0]]}) > 1
    return next(reasons, "several versions of the program have carried it" if several else None)


def alike(log: Log, submission: Submitted, kind: str) -> Iterator[list[Envelope]]:
    """Yield the rows of each run of a kind with these settings whose result can be reused."""
    settings = lineage.entry(submission.type, submission.payload())
    for row in log.streams(f"{kind}/"):
        if row.type == submission.type and lineage.entry(row.type, row.data) == settings:
            rows = list(log.iterate(row.stream))
            if unfit(rows) is None:
                yield rows


def wrong(rows: Sequence[Envelope], state: State, reused: str) -> str | None:
    """Return why a run cannot be the one whose recorded identity is `reused`; None if it can."""
    if (why := unfit(rows)) is not None:
        return f"it cannot have been taken for an equal one: {why}"
    if any(getattr(state.submitted.config, name, None) is not None for name in _BY_THE_CLOCK):
        return "it cannot have been taken for an equal one: its settings limit it by the clock"
    if identity(state, rows[0].code_version) != reused:
        return "it is not equal to the run that it was taken for"
    return None
