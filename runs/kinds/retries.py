"""Failed tasks, dead processes and quarantine: what is tried again, and what ends the run.

Pure.
"""

from __future__ import annotations

from events import New
from runs import kinds
from runs.kinds.state import State
from runs.record import events

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
    """Return the run's failure if a task of it failed `ATTEMPTS` times; else an empty list."""
    worn = [f for task, f in sorted(state.failures.items()) if attempts(state, task) >= ATTEMPTS]
    if not worn:
        return []
    return [failure(state, f"task {worn[0].task} failed {ATTEMPTS} times: {worn[0].error}")]


def quarantine(state: State) -> list[New]:
    """Return the next fact about tasks that kill their processes: quarantine or the run's failure.

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
    """Return a key that differs after every retry."""
    return key + (f"/{state.retries}" if state.retries else "")


def failed_key(state: State) -> str:
    """Return the idempotency key of `failed`; it differs after a retry, as a run may fail again."""
    return _again(state, f"{state.run}/failed")


def failure(state: State, reason: str) -> New:
    """Return the fact that the run has failed."""
    return New(events.Failed(reason=reason), failed_key(state))
