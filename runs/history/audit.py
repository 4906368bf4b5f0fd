"""Audit of a run's history, from the log alone.

Pure: rows in, findings out.

chain      every row's hash fits its content and the row before, stream by stream
events     every row validates under its type and schema
decisions  each append was due by the events before it, each answer belongs to an open task, and the
           models that a run begins with are those that it was submitted with
result     the fold has the result, the lineage digest and the chain head that `completed` says

What a kind of run adds to these checks is in its class: `validate_answer`, `wrong_fork`,
`wrong_result`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from agent_forge.events import Envelope, Event, EventsError, New, Registry, UnknownEventError, chain
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, ForgeError
from agent_forge.runs.history.repository import appends, empty
from agent_forge.runs.kinds.asked import differ, given_models, roles
from agent_forge.runs.kinds.controls import refusal
from agent_forge.runs.kinds.decide import (
    NextWork,
    due,
    failed_key,
    open_tasks,
    part_key,
    validate_part,
    whole_key,
)
from agent_forge.runs.kinds.kind import AnyKind
from agent_forge.runs.kinds.state import State
from agent_forge.runs.record import events as run_events
from agent_forge.runs.record import lineage
from agent_forge.runs.record.events import Described, Wish
from agent_forge.runs.streams import run_of
from agent_forge.runs.system.rounding import alike

#: error: something is wrong; unchecked: it could not be checked; note: worth knowing, not wrong.
Level = Literal["error", "unchecked", "note"]
Check = Literal[
    "chain",
    "events",
    "decisions",
    "result",
    "weights",
    "fitness",
    "artifacts",
    "files",
    "origins",
    "children",
]
#: Events that are appended alone, as a kind's answers are; the others are facts, which follow from
#: the events before them.
_ALONE = (
    run_events.Submitted,
    run_events.Forked,
    run_events.DivergenceDetected,
    run_events.TaskFailed,
    run_events.TaskDied,
    run_events.PartDone,
    run_events.MemoryPeaked,
    Wish,
)


@dataclass(frozen=True)
class Finding:
    """A result of an audit: an error, something that could not be checked, or a note."""

    level: Level
    check: Check
    message: str
    #: The event's place in the history, from 1.
    place: int | None = None


@dataclass(frozen=True)
class Anchor:
    """An event's hash stored outside of the history; it reveals a truncated log."""

    version: int
    head: str
    noted_in: str


def audit(rows: Sequence[Envelope], anchors: Sequence[Anchor] = ()) -> list[Finding]:
    """Return the findings of all checks that a run's whole history allows; empty if it is right."""
    kind = kinds.kind_of(rows[-1].stream) if rows else None
    if kind is None:
        return [Finding("unchecked", "events", "this program knows no such kind of run")]
    findings = list(_chain(rows, anchors))
    broken = bool(findings)
    findings += _clocks(rows)
    unreadable = list(_events(rows, kind.state.registry))
    findings += unreadable
    if broken or unreadable:
        why = "not checked: the history is broken" if broken else "not checked: see the events above"
        return [*findings, *(Finding("unchecked", check, why) for check in ("decisions", "result"))]
    return [*findings, *_decisions(kind, rows)]


def audit_stream(rows: Sequence[Envelope], registry: Registry | None) -> list[Finding]:
    """Return the findings, if any, on chain, times and events of a stream that belongs to no run.

    `registry` has the stream's events; None if this program does not write the stream.
    """
    findings = [*_chain(rows, ()), *_clocks(rows)]
    if registry is None:
        return [*findings, Finding("unchecked", "events", "this program writes no such stream")]
    return [*findings, *_events(rows, registry)]


def _chain(rows: Sequence[Envelope], anchors: Sequence[Anchor]) -> Iterator[Finding]:
    start = 0
    streams = list(dict.fromkeys(row.stream for row in rows))
    for stream in streams:
        stream_rows = [row for row in rows if row.stream == stream]
        for fault in chain.check(stream_rows):
            yield Finding("error", "chain", fault.message, start + fault.version)
        if stream == streams[-1]:
            for anchor in anchors:
                lost = chain.missing_tail(stream_rows, anchor.version, anchor.head, anchor.noted_in)
                if lost is not None:
                    yield Finding("error", "chain", lost.message, start + lost.version)
        start += len(stream_rows)


def _clocks(rows: Sequence[Envelope]) -> Iterator[Finding]:
    """Yield one note if recorded times run backwards, else nothing.

    A forger who exchanges two results and computes every hash again leaves no other trace. Honest
    logs have such times too, if a clock was set back or the clocks of machines differ.
    """
    back = [
        place
        for place, (before, row) in enumerate(pairwise(rows), start=2)
        if before.stream == row.stream and str(row.recorded_at) < str(before.recorded_at)
    ]
    if back:
        more = f" (and {len(back) - 1} more)" if len(back) > 1 else ""
        what = (
            f"event {back[0]} was recorded at an earlier time than the event before it{more}: a clock "
            "was set back, clocks of machines differ, or events were exchanged"
        )
        yield Finding("note", "chain", what, back[0])


def _events(rows: Sequence[Envelope], registry: Registry) -> Iterator[Finding]:
    for place, row in enumerate(rows, start=1):
        try:
            registry.load(row)
        except UnknownEventError as error:
            yield Finding("unchecked", "events", str(error), place)
        except EventsError as error:
            yield Finding("error", "events", str(error), place)


def _decisions(kind: AnyKind, rows: Sequence[Envelope]) -> list[Finding]:
    state, done = empty(rows[-1].stream), set[str]()
    findings: list[Finding] = []
    try:
        for group in appends(rows):
            events = [state.registry.load(row) for row in group]
            problem = _undecided(kind, state, group, events, done)
            done |= {row.key.partition("/")[2] for row in group}
            if problem is not None:
                findings.append(Finding("error", "decisions", problem, state.place + 1))
            begun = state.started
            state.absorb(group)
            if state.started is not begun and (problem := _other_models(kind, state)):
                findings.append(Finding("error", "decisions", problem, state.place))
            if state.completed and not state.place < len(rows):
                findings += _result(kind, state, rows)
    except ForgeError as error:  # a strategy that this program does not have
        findings.append(Finding("unchecked", "decisions", str(error), state.place + 1))
    except (AssertionError, LookupError, ValueError, ArithmeticError, TypeError) as error:
        what = f"the history cannot have been decided: {type(error).__name__}: {error}"
        findings.append(Finding("error", "decisions", what, state.place + 1))
    return findings


def _undecided(
    kind: AnyKind, state: State, group: Sequence[Envelope], events: Sequence[Event], done: set[str]
) -> str | None:
    """Return the reason why this append does not follow from the state before it; None if it does.

    `done` has the keys of the tasks that were answered before the append.
    """
    row, first = group[0], events[0]
    if row.causation is not None and not isinstance(first, run_events.Submitted):
        return f"{row.type} names a cause, but is not part of an append that has one"
    if state.submitted is None and not isinstance(first, run_events.Submitted):
        return f"the history begins with {row.type}, not with submitted"
    if not isinstance(first, _ALONE) and type(first) not in kind.answers:
        return _unlike(_by_its_rule(state, _facts_due(state, first), events), group, events)
    described = isinstance(first, run_events.Submitted) and isinstance(events[-1], Described)
    if len(group) > (2 if described else 1):
        return f"{row.type} is never appended together with {group[1].type}"
    return _misnamed(state, row, first) or _unfounded(kind, state, row, first, done)


def _facts_due(state: State, first: Event) -> NextWork:
    """Return the NextWork that was due; for a `failed` before the start, one with just that event."""
    if isinstance(first, run_events.Failed) and state.started is None and not state.ended:
        # Models or data could not be used: only the start knows why, so its reason is accepted.
        return NextWork(facts=[New(first, failed_key(state))])
    return due(state)


def _by_its_rule(state: State, decision: NextWork, events: Sequence[Event]) -> NextWork:
    """Return `decision`, with the recorded lineage digest if an older rule gives that digest."""
    recorded = {e.lineage_digest for e in events if isinstance(e, run_events.Completed)}
    if not recorded or not (older := recorded & _lineages(state)):
        return decision
    changes = {"lineage_digest": older.pop()}
    facts = [
        New(new.event.model_copy(update=changes), new.key)
        if isinstance(new.event, run_events.Completed)
        else new
        for new in decision.facts
    ]
    return NextWork(facts=facts, tasks=decision.tasks)


def _lineages(state: State) -> set[str]:
    """Return the lineage digests of a state, one by each rule."""
    return {state.lineage_digest(rule) for rule in lineage.RULES}


def _unfounded(kind: AnyKind, state: State, row: Envelope, event: Event, done: set[str]) -> str | None:
    """Return why an event that is appended alone does not follow from the state, or None."""
    if isinstance(event, run_events.Submitted):
        return None if state.place == 0 else f"event {row.type} is not at the beginning"
    if isinstance(event, run_events.Forked):
        return _unlike_past(kind, state, event)
    if isinstance(event, run_events.DivergenceDetected):
        answered = event.task in done
        return None if answered else f"task {event.task} differs from a result that is not there"
    if isinstance(event, Wish):
        why = refusal(state, event)
        return None if why is None else f"the run could not be {row.type}: {why}"
    if isinstance(event, run_events.TaskFailed | run_events.TaskDied):
        return _unlike_trouble(state, event, done)
    if isinstance(event, run_events.MemoryPeaked):
        tasks = done | state.parts.keys() | {whole_key(task.key) for task in open_tasks(state)}
        return None if event.task in tasks else f"task {event.task} took memory, but was not asked for"
    if isinstance(event, run_events.PartDone):
        keys = (event.task, part_key(event.task, event.begin))
        task = next((t for t in open_tasks(state) if t.key in keys), None)
        if task is None:
            return f"a part of task {event.task} was done, which the events before do not ask for"
        return validate_part(state, task, event)
    return _unasked(kind, state, row, event)


def _unasked(kind: AnyKind, state: State, row: Envelope, event: Event) -> str | None:
    """Return why the event answers no task that was asked for; None if it answers one."""
    suffix = row.key.partition("/")[2]
    task = next((t for t in open_tasks(state) if t.key == suffix), None)
    if task is None or not isinstance(task, kind.answers[type(event)]):
        return f"{row.type} answers task {suffix}, which the events before do not ask for"
    return kind.validate_answer(state, task, event)


def _other_models(kind: AnyKind, state: State) -> str | None:
    """Return why `started` pins other models than `submitted` names by digest; None if it does not."""
    pinned = kind.inputs(state)
    submitted: run_events.Submitted = state.submitted
    for role in roles(type(submitted)):
        models = given_models(submitted).get(role, ())
        meant = [reference.digest for reference in models]
        if role in pinned and any(meant) and differ(meant, pinned[role]):
            return f"started pins other models as {role} than submitted names"
    return None


def _unlike_trouble(
    state: State, event: run_events.TaskFailed | run_events.TaskDied, done: set[str]
) -> str | None:
    """Return why a task cannot have failed, or died, as the event says; None if it can."""
    opened = {whole_key(task.key) for task in open_tasks(state)}
    if event.task not in done and event.task not in opened:
        return f"task {event.task} failed, but was not asked for"
    before = (state.failures if isinstance(event, run_events.TaskFailed) else state.deaths).get(
        event.task
    )
    attempt = 1 + (before.attempt if before else 0)
    if event.attempt != attempt:
        return f"task {event.task} failed for the {event.attempt}. time, after {attempt - 1} before"
    return None


def _misnamed(state: State, row: Envelope, event: Event) -> str | None:
    """Return why the row's stream or key is not that of its event; None if both are.

    A key ensures that what it names is recorded once.
    """
    run = run_of(row.stream)
    event_run = event.run if isinstance(event, run_events.Submitted | run_events.Forked) else state.run
    if run != event_run:
        return f"{row.type} of run {event_run} stands in the stream of run {run}"
    match event:
        case run_events.Submitted() | run_events.Forked():
            parts = [run, event.type]
        case run_events.TaskFailed():
            parts = [run, event.task, "failed", str(event.attempt)]
        case run_events.TaskDied():
            parts = [run, event.task, "died", str(event.attempt)]
        case run_events.PartDone():
            parts = part_key(f"{run}/{event.task}", event.begin).split("/")
        case run_events.MemoryPeaked():
            parts = [run, event.task, "memory", str(event.bytes)]
        case run_events.DivergenceDetected():
            parts = [run, event.task, "divergence", row.key.rpartition("/")[2]]
        case _ if isinstance(event, Wish):
            parts = [run, event.type, row.key.rpartition("/")[2]]
        case _:  # an answer: `_unasked` compares the rest of the key with the open tasks
            parts = [run, row.key.partition("/")[2]]
    key = "/".join(parts)
    return None if row.key == key else f"{row.type} is recorded under {row.key}, not under {key}"


def _unlike_past(kind: AnyKind, state: State, fork: run_events.Forked) -> str | None:
    assert state.submitted
    if (fork.parent, fork.version, fork.head) != (state.run, state.version, state.head):
        return "the fork names another past than the one before it"
    try:
        expected = kind.settings.changed(state.submitted.config, fork.changes)
    except ConfigError:
        return "the fork's changes do not suit the settings before it"
    if expected != fork.config:
        return "the fork's settings are not those before it with its changes"
    return kind.forks.wrong(state, fork)


def _unlike(decision: NextWork, group: Sequence[Envelope], events: Sequence[Event]) -> str | None:
    """Return the reason why the append is not the facts that are due; None if it is.

    The facts must be equal but for rounding, under the same keys and in the same order. Optional fields
    that are newer than the schema of a row are not compared.
    """
    due_facts = [(new.event.type, new.key, new.event.model_dump()) for new in decision.facts]
    recorded_facts = [(r.type, r.key, e.model_dump()) for r, e in zip(group, events, strict=True)]
    for row, event, due_one in zip(group, events, due_facts, strict=False):
        if row.type == due_one[0]:
            due_one[2].update(dict.fromkeys(_later(row, event)))
    if alike(due_facts, recorded_facts):
        return None
    recorded_types = ", ".join(row.type for row in group)
    due_types = ", ".join(type_ for type_, *_ in due_facts) or "tasks only"
    if due_types == recorded_types:
        return f"{recorded_types} does not say what follows from the events before"
    return f"{recorded_types} does not follow from the events before, which ask for: {due_types}"


def _later(row: Envelope, event: Event) -> list[str]:
    """Return the names of the event's optional fields that are newer than the row's schema."""
    if row.schema >= event.schema_version:
        return []
    had = json.loads(row.data)
    fields = type(event).model_fields.items()
    return [name for name, field in fields if field.default is None and name not in had]


def _result(kind: AnyKind, state: State, rows: Sequence[Envelope]) -> Iterator[Finding]:
    """Yield an error for each statement of `completed` that the events before it contradict."""
    done = state.completed
    assert done
    place = 1 + max(i for i, row in enumerate(rows) if row.type == run_events.Completed.type)
    for wrong in kind.wrong_result(state):
        yield Finding("error", "result", wrong, place)
    if done.lineage_digest not in _lineages(state):
        yield Finding("error", "result", "the lineage digest is not that of the events", place)
    if rows[place - 1].prev_hash != done.chain_head:
        yield Finding("error", "result", "the chain head is not the event before's hash", place)
