"""Failed tasks, dead processes and quarantine: what is tried again, and what ends the run.

Pure.
"""

from __future__ import annotations

from events import New
from evomerge.run import events
from evomerge.run.state import RunState
from evomerge.run.tasks import Measure, Start

#: A task that failed `ATTEMPTS` times ends the run.
ATTEMPTS = 3

#: A task whose process died `DEATHS` times is not tried again.
DEATHS = 3


def attempts(state: RunState, task: str) -> int:
    """Return how often a task has failed since a user last asked for a retry."""
    failure = state.failures.get(task)
    return failure.attempt - state.forgiven.get(task, 0) if failure else 0


def deaths(state: RunState, task: str) -> int:
    """Return how often a task's process has died since a user last asked for a retry."""
    death = state.deaths.get(task)
    return death.attempt - state.forgiven_deaths.get(task, 0) if death else 0


def quarantine(state: RunState) -> list[New]:
    """Return the next fact about tasks that kill their processes: quarantine or the run's failure.

    Empty if none is due. A quarantined task ends the run if the run's `quarantine` is "fail", or
    if nothing can be compared without the task.
    """
    assert state.submitted
    for task, death in sorted(state.deaths.items()):
        if task not in state.quarantined and deaths(state, task) >= DEATHS:
            event = events.TaskQuarantined(
                task=task, reason=f"its process died {DEATHS} times: {death.how}"
            )
            return [New(event, _again(state, f"{state.run}/{task}/quarantined"))]
    for task, event in sorted(state.quarantined.items()):
        if state.submitted.quarantine == "fail" or _essential(state, task):
            reason = f"task {task} is quarantined: {event.reason}"
            return [New(events.Failed(reason=reason), failed_key(state))]
    return []


def _essential(state: RunState, task: str) -> bool:
    """Return True if nothing can be compared without the task: start, profile, a source's score."""
    return task in (Start.key, Measure.key) or task.rpartition("/")[2] in (
        {source.recipe_id for source in state.started.sources} if state.started else ()
    )


def _again(state: RunState, key: str) -> str:
    """Return a key that differs after every retry."""
    return key + (f"/{state.retries}" if state.retries else "")


def failed_key(state: RunState) -> str:
    """Return the idempotency key of `failed`; it differs after a retry, as a run may fail again."""
    return _again(state, f"{state.run}/failed")
