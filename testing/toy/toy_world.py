"""A log of one toy run in memory: real rows, their hash chain and the fold, without a store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from agent_forge.events import Envelope, Event, New, chain
from agent_forge.runs.kinds.decide import NextWork, Task, decide
from agent_forge.runs.record import events as common
from testing.toy.toy_kind import ToyContext
from testing.toy.toy_state import Submitted, ToyConfig, ToyState

RUN = "toy-1"

#: Puts open tasks into the order in which they are done.
Order = Callable[[Sequence[Task]], Sequence[Task]]


class ToyWorld:
    """A toy run's rows and state; `step` does what `decide` asks for."""

    def __init__(self, quarantine: common.Quarantine = "fail", **settings: Any) -> None:
        self.rows: list[Envelope] = []
        self.state = ToyState()
        config = ToyConfig(**settings)
        submitted = Submitted(run=RUN, owner="ada", config=config, quarantine=quarantine)
        self.append([New(submitted, f"{RUN}/submitted")])

    def append(self, new: Sequence[New]) -> None:
        """Record events as the store does, hash chain included, and fold them."""
        for number, one in enumerate(new):
            values = {
                "stream": f"toy/{RUN}",
                "version": len(self.rows) + 1,
                "event_id": _sha(one.key),
                "type": one.event.type,
                "schema": one.event.schema_version,
                "data": one.event.payload(),
                "key": one.key,
                "actor": "ada",
                "causation": _sha(new[0].key) if number else None,
                "correlation": None,
                "recorded_at": "2026-01-01T00:00:00.000000+00:00",
                "code_version": "test",
                "prev_hash": self.rows[-1].hash if self.rows else chain.GENESIS,
            }
            row = Envelope(position=len(self.rows) + 1, **values, hash=chain.link(values))
            self.rows.append(row)
            self.state.absorb([row])

    def note(self, event: Event, *key: str) -> None:
        """Record one event under the run's name and `key`."""
        self.append([New(event, "/".join([RUN, *key]))])

    def fail(self, task: str) -> None:
        """Record that a task raised an error."""
        before = self.state.failures.get(task)
        attempt = before.attempt + 1 if before else 1
        event = common.TaskFailed(task=task, attempt=attempt, error="ArithmeticError: no")
        self.note(event, task, "failed", str(attempt))

    def die(self, task: str) -> None:
        """Record that a task's process died."""
        before = self.state.deaths.get(task)
        attempt = before.attempt + 1 if before else 1
        event = common.TaskDied(task=task, attempt=attempt, how="killed by signal 9")
        self.note(event, task, "died", str(attempt))

    def step(self, order: Order = list) -> NextWork:
        """Decide once, record the facts or do every task in the given order; return the decision."""
        decision = decide(self.state)
        if decision.facts:
            self.append(decision.facts)
        for task in order(decision.tasks) if not decision.facts else ():
            self.note(ToyContext(self.state).carry_out(task), task.key)
        return decision

    def run(self, order: Order = list) -> ToyState:
        """Take steps until the run has ended; return the state."""
        while not self.state.ended:
            self.step(order)
        return self.state


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
