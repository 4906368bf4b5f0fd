"""`decide`: what a run does next, as a pure function of its state.

What is common to every kind of run is decided here; the rest by the kind's own `due`.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from runs import kinds
from runs.errors import ForgeError
from runs.kinds.retries import quarantine, worn_out
from runs.kinds.state import State, forgive
from runs.kinds.tasks import Decision, Start


def decide(state: State) -> Decision:
    """Return what to do next; an empty decision while the run is paused."""
    return Decision() if state.paused else due(state)


def due(state: State) -> Decision:
    """Return what there is to do, even if the run is paused."""
    if state.submitted is None:
        raise ValueError("a run begins with `submitted`")
    if state.skipped:
        raise ValueError("nothing may be decided from a history with events left out")
    if state.ended:
        return Decision()
    if trouble := worn_out(state) or quarantine(state):
        return Decision(facts=trouble)
    if state.started is None:
        return Decision(tasks=[Start()])
    return kinds.of(state.kind).due(state)


def open_tasks(state: State) -> list[Any]:
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
