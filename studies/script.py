"""Scripts: what a run does, written down as it happens. Pure.

A script is a generator. It yields what the run needs next and is sent the recorded answers. A run is
decided by running its script over the log until an answer is missing, and what is known of it so far is
what the script has said until then. Answers are found by key, so the order of the code is no part of
the history.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from events import Event, New
from runs.kinds.retries import failure
from runs.kinds.tasks import Decision, Task
from studies.making import making
from studies.making.events import Making


class Step(Protocol):
    """Something that a run needs before its script goes on."""

    def missing(self, state: Any) -> Decision:
        """Return the facts or tasks that are open; an empty decision if there are none."""
        ...

    def answer(self, state: Any) -> Any:
        """Return what the script is sent once nothing is missing."""
        ...


Script = Generator[Step, Any, Any]


@dataclass(frozen=True)
class Make:
    """Make recipes side by side."""

    recipes: Sequence[Making]

    def missing(self, state: Any) -> Decision:
        """Return the trainings that have ended as facts, or else what is to make."""
        segment = getattr(state.started, "segment", 0)  # a run without trainings has none
        return making.next_of(state, self.recipes, segment)

    def answer(self, state: Any) -> None:
        """Return nothing: a recipe says what was made."""


@dataclass(frozen=True)
class Ask:
    """Do tasks side by side; the script is sent name → answer."""

    tasks: Mapping[str, Task]

    def missing(self, state: Any) -> Decision:
        """Return the tasks without an answer; tasks of one key once."""
        tasks_by_key = {task.key: task for task in self.tasks.values()}
        return Decision(
            tasks=[task for key, task in tasks_by_key.items() if key not in state.answers]
        )

    def answer(self, state: Any) -> dict[str, Event]:
        """Return name → answer."""
        return {name: state.answers[task.key] for name, task in self.tasks.items()}


@dataclass(frozen=True)
class Note:
    """Record what follows from the answers so far, under a key that is the run's alone.

    The event's class has no handler in the state, so that it is found in `answers`. A function that
    returns the event is called only until the event is recorded.
    """

    key: str
    event: Event | Callable[[], Event]

    def missing(self, state: Any) -> Decision:
        """Return the fact until it is recorded."""
        if self.key in state.answers:
            return Decision()
        event = self.event if isinstance(self.event, Event) else self.event()
        return Decision(facts=[New(event, f"{state.run}/{self.key}")])

    def answer(self, state: Any) -> Event:
        """Return the event as it was recorded."""
        return state.answers[self.key]


@dataclass(frozen=True)
class Fail:
    """End the run as failed."""

    reason: str

    def missing(self, state: Any) -> Decision:
        """Return the failure."""
        return Decision(facts=[failure(state, self.reason)])

    def answer(self, state: Any) -> None:
        """Return nothing: no script goes on after it."""


@dataclass(frozen=True)
class Together:
    """Run scripts side by side; the script is sent name → what each has returned."""

    scripts: Mapping[str, Script]
    _returned: dict[str, Any] = field(default_factory=dict, repr=False)

    def missing(self, state: Any) -> Decision:
        """Return the facts of all scripts, or else their tasks; those of one key once."""
        facts, tasks = dict[str, New](), dict[str, Task]()
        for name, script in self.scripts.items():
            missing, self._returned[name] = follow(script, state)
            facts |= {new.key: new for new in missing.facts}
            tasks |= {task.key: task for task in missing.tasks}
        return Decision(facts=[*facts.values()]) if facts else Decision(tasks=[*tasks.values()])

    def answer(self, state: Any) -> dict[str, Any]:
        """Return name → what the script has returned."""
        return self._returned


def follow(script: Script, state: Any) -> tuple[Decision, Any]:
    """Return (what the script waits for, None), or (an empty decision, what the script returns)."""
    answer = None
    while True:
        try:
            step = script.send(answer)
        except StopIteration as end:
            return Decision(), end.value
        missing = step.missing(state)
        if missing.facts or missing.tasks:
            return missing, None
        answer = step.answer(state)
