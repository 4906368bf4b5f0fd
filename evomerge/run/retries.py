"""Failed tasks, dead processes and quarantine: what is tried again, and what ends the run. Pure."""

from __future__ import annotations

from events import New
from evomerge.run import events
from evomerge.run.state import RunState
from evomerge.run.tasks import Measure, Start

#: A task that failed so often ends the run.
ATTEMPTS = 3

#: A task whose process died so often is not tried again.
DEATHS = 3


def attempts(state: RunState, task: str) -> int:
    """How often a task has failed since somebody last asked for another try."""
    failure = state.failures.get(task)
    return failure.attempt - state.forgiven.get(task, 0) if failure else 0


def deaths(state: RunState, task: str) -> int:
    """How often a task's process has died since somebody last asked for another try."""
    death = state.deaths.get(task)
    return death.attempt - state.forgiven_deaths.get(task, 0) if death else 0


def quarantine(state: RunState) -> list[New]:
    """Tasks that kill every process that tries them: set aside, or the end of the run."""
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
    """Whether nothing can be compared without this task: the start, the profile, a source's score."""
    return task in (Start.key, Measure.key) or task.rpartition("/")[2] in (
        {source.recipe_id for source in state.started.sources} if state.started else ()
    )


def _again(state: RunState, key: str) -> str:
    """A key that is another one after every retry."""
    return key + (f"/{state.retries}" if state.retries else "")


def failed_key(state: RunState) -> str:
    """The idempotency key of `failed`: a run that is tried again may fail again."""
    return _again(state, f"{state.run}/failed")
