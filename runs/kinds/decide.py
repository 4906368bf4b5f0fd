"""`decide`: what a run does next, as a pure function of its state; its tasks, retries and quarantine.

Here is what all kinds of run have in common; the rest is decided by the kind's own `due`. A task is
work that the run needs done outside of its log. Failed tasks and dead processes are tried again, until
quarantine ends the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from agent_forge.events import Event, New
from agent_forge.runs import kinds
from agent_forge.runs.errors import ForgeError
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.runs.kinds.state import State, forgive
from agent_forge.runs.record import events


def decide(state: State) -> NextWork:
    """Return the NextWork, facts or tasks, that follows from a state; empty while the run is paused."""
    return NextWork() if state.paused else due(state)


def due(state: State) -> NextWork:
    """Return the NextWork of a run, even if it is paused; empty if it has ended. Raises ValueError."""
    if state.submitted is None:
        raise ValueError("a run begins with `submitted`")
    if state.skipped:
        raise ValueError("nothing may be decided from a history with events left out")
    if state.ended:
        return NextWork()
    if trouble := worn_out(state) or quarantine(state):
        return NextWork(facts=trouble)
    if state.started is None:
        return NextWork(tasks=in_parts(state, [Start()]))
    decision = kinds.of(state.kind).due(state)
    return replace(decision, tasks=in_parts(state, decision.tasks)) if state.parts else decision


def open_tasks(state: State) -> list[Task]:
    """Return the tasks that a process may be doing, as if nothing had failed or been cancelled.

    A result may come late, after the failure, the cancellation or the quarantine of its task.
    """
    alive = copy(state)
    alive.failed = alive.cancelled = None
    forgive(alive)
    alive.quarantined = state.quarantined
    tasks = due(alive).tasks
    alive.quarantined = {}
    return list({task.key: task for task in (*tasks, *due(alive).tasks)}.values())


def pending(state: State) -> list[str]:
    """Return what the run does next: types of facts, or keys of tasks."""
    if state.submitted is None or state.ended or state.skipped:
        return []
    try:
        decision = decide(state)
    except ForgeError as error:  # another version's strategy
        return [f"unknown: {error}"]
    return [new.event.type for new in decision.facts] or [task.key for task in decision.tasks]


class Task(Protocol):
    """Work whose result is one event; the task's key ends the event's idempotency key."""

    @property
    def key(self) -> str:
        """The task's name within its run."""
        ...


class Context(Protocol):
    """The opened inputs of one run in one process, and the work on its tasks."""

    #: The state that the context was opened for; its tasks are carried out from it.
    state: State

    def carry_out(self, task: Task) -> Event:
        """Do the task and return its event; append nothing. Raises the errors of the work."""
        ...

    def check_unchanged(self) -> None:
        """Raise a ForgeError if an input or the profile is not the one that `started` pins."""
        ...

    def share(self, task: Task, tasks: Sequence[Task]) -> Sequence[Task]:
        """Return the open tasks, this one first, whose work one process had better do at once."""
        ...

    def prepare(self, tasks: Sequence[Task]) -> None:
        """Do the work that these tasks share. `carry_out` is then called for each of them."""
        ...


@dataclass(frozen=True)
class Start:
    """Task: read what the run depends on, and pin it. Every kind's first task."""

    key = "start"


@dataclass(frozen=True)
class Delegate:
    """Task: a run of its own, a child of this one. A device works on the child, and not on the task.

    Its answer is a `runs.record.events.ChildEnded`, made by the kind's `children` when the child has
    ended.
    """

    key: str
    #: The name of the child.
    run: str
    asked: RunRequest


@dataclass(frozen=True)
class NextWork:
    """The facts or tasks that follow from a state; both empty if the run has ended or is paused.

    Facts follow from the log, so any process may append them as they are. Tasks must be carried out
    in the world. Facts come first: after appending them, the caller decides again.
    """

    facts: list[New] = field(default_factory=list[New])
    #: Of classes of the kind's own.
    tasks: Sequence[Any] = ()


@dataclass(frozen=True)
class TaskPart:
    """Task: pieces `begin` to `end` of a long task, of which an earlier part is recorded.

    A process does the pieces of a task in their order, for `SECONDS`, and records what is done: a kill
    costs that much. The first part tells how many pieces there are and how long they take; the others
    are then cut by that pace, and several devices do them. When all are recorded, the whole task is
    done with their results.
    """

    whole: Task
    begin: int
    end: int

    @property
    def key(self) -> str:
        """The key of the whole task, and the first piece."""
        return part_key(self.whole.key, self.begin)


#: Seconds of work after which a part of a task is recorded; parts of one task that are open at once.
SECONDS, MOST_PARTS = 30.0, 32
_PART = "/part/"


def part_key(task: str, begin: int) -> str:
    """Return the key of the part of a task that begins with a piece."""
    return f"{task}{_PART}{begin}"


def whole(task: Any) -> Any:
    """Return the whole task of a part; any other task as it is."""
    return task.whole if isinstance(task, TaskPart) else task


def whole_key(key: str) -> str:
    """Return the key of the whole task that a task is a part of; of any other task its own key."""
    return key.partition(_PART)[0]


def in_parts(state: State, tasks: Sequence[Any]) -> list[Any]:
    """Return the tasks, with the open parts of those that were begun instead of the whole ones."""
    opened = ((task, open_parts(state.parts.get(task.key, {}))) for task in tasks)
    return [part for task, ranges in opened for part in [TaskPart(task, *r) for r in ranges] or [task]]


def open_parts(parts: Mapping[int, events.PartDone]) -> list[tuple[int, int]]:
    """Return the (begin, end) of the parts that are open after those recorded, at most `MOST_PARTS`.

    Empty if none is recorded or none is missing. The cuts follow from the first part of its stage, so
    that they stay as they are while devices work: a device that stops earlier leaves the rest of its
    part open.
    """
    count = max((part.of for part in parts.values()), default=0)
    first = min((p for p in parts.values() if p.of == count), key=lambda p: p.begin, default=None)
    if first is None:
        return []
    size = max(1, int(SECONDS * (first.end - first.begin) / max(first.seconds, 1e-9)))
    opened: list[tuple[int, int]] = []
    for begin in range(first.end, count, size):
        end, place = min(begin + size, count), begin
        while place in parts:
            place = parts[place].end
        if place < end:
            opened.append((place, end))
        if len(opened) == MOST_PARTS:
            break
    return opened


def validate_part(state: State, task: Any, part: events.PartDone) -> str | None:
    """Return why a recorded part does not answer an open task; None if it does. For the audit."""
    recorded = state.parts.get(part.task, {})
    count = max((p.of for p in recorded.values()), default=0)
    if not part.begin < part.end <= part.of:
        return "a part ends before it begins, or after the last piece"
    if isinstance(task, TaskPart):
        fits = (part.begin, part.of) == (task.begin, count) and part.end <= task.end
        return None if fits else "a part is of other pieces than those that were asked for"
    fits = part.begin == count < part.of
    return None if fits else "a first part does not begin after the pieces that are known"


#: A task that failed `ATTEMPTS` times ends the run.
ATTEMPTS = 3

#: A task whose process died `DEATHS` times is not tried again.
DEATHS = 3


def attempts(state: State, task: str) -> int:
    """Return how often a task has failed since a user last asked for a retry."""
    failure = state.failures.get(task)
    return failure.attempt - state.forgiven.get(task, 0) if failure else 0


def deaths(state: State, task: str) -> int:
    """Return how often a task's process has died since a user last asked for a retry."""
    death = state.deaths.get(task)
    return death.attempt - state.forgiven_deaths.get(task, 0) if death else 0


def worn_out(state: State) -> list[New]:
    """Return a list of the run's `failed` if a task of it failed `ATTEMPTS` times; else []."""
    worn = [f for task, f in sorted(state.failures.items()) if attempts(state, task) >= ATTEMPTS]
    if not worn:
        return []
    return [failure(state, f"task {worn[0].task} failed {ATTEMPTS} times: {worn[0].error}")]


def quarantine(state: State) -> list[New]:
    """Return a list of a fact on a task that kills its processes: its quarantine or the run's failure.

    Empty if none is due. A quarantined task ends the run if the run's `quarantine` is "fail", or
    if the run cannot go on without the task.
    """
    assert state.submitted
    for task, death in sorted(state.deaths.items()):
        if task not in state.quarantined and deaths(state, task) >= DEATHS:
            event = events.TaskQuarantined(
                task=task, reason=f"its process died {DEATHS} times: {death.how}"
            )
            return [New(event, _again(state, f"{state.run}/{task}/quarantined"))]
    for task, event in sorted(state.quarantined.items()):
        essential = kinds.of(state.kind).essential(state, task)
        if state.submitted.quarantine == "fail" or essential:
            return [failure(state, f"task {task} is quarantined: {event.reason}")]
    return []


def _again(state: State, key: str) -> str:
    """Return `key`, with the number of the run's retries at its end if there were any."""
    return key + (f"/{state.retries}" if state.retries else "")


def failed_key(state: State) -> str:
    """Return the idempotency key of `failed`; it differs after a retry, as a run may fail again."""
    return _again(state, f"{state.run}/failed")


def failure(state: State, reason: str) -> New:
    """Return the fact that the run has failed."""
    return New(events.Failed(reason=reason), failed_key(state))
