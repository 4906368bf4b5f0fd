"""Scheduling weights and task limits of users, as events of their own stream."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, WithJsonSchema

from agent_forge.events import (
    Cause,
    ChainError,
    ConcurrencyError,
    Event,
    EventStore,
    New,
    PayloadError,
    Registry,
    chain,
)
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.event_types import Count
from agent_forge.runs.system import plain_text
from agent_forge.worker.append import actor

log = logging.getLogger(__name__)

REGISTRY = Registry()

STREAM = "queue"


#: A user's weight; the scheduler divides by it.
Weight = Annotated[float, Field(gt=0, le=1e6), WithJsonSchema({"type": "number"})]


@REGISTRY.event
class LimitsChanged(Event):
    """A user's weight or limit was changed, or the default limits of all users."""

    type = "limits_changed"

    #: None: all users without a limit of their own.
    owner: str | None
    weight: Weight | None = None
    #: Tasks under way at once; 0 removes the limit.
    tasks: Count | None = None
    #: Tasks of one run under way at once; only without an owner.
    run_tasks: Count | None = None


@dataclass(frozen=True)
class Limits:
    """The largest number of tasks under way at once, per user and per run; None is no limit."""

    per_user: int | None = None
    per_run: int | None = None


@dataclass
class Rules:
    """The weights and limits that follow from the events of the stream."""

    everybody: Limits = field(default_factory=Limits)
    weights: dict[str, float] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)
    #: Version of the stream up to which events are absorbed, and the chain's head there.
    version: int = 0
    head: str = chain.GENESIS

    def absorb(self, event: LimitsChanged) -> None:
        """Apply the next event."""
        if event.owner is None:
            self.everybody = Limits(
                _changed(self.everybody.per_user, event.tasks),
                _changed(self.everybody.per_run, event.run_tasks),
            )
            return
        if event.weight is not None:
            self.weights[event.owner] = event.weight
        if event.tasks is not None:
            self.tasks.pop(event.owner, None)
            if event.tasks:
                self.tasks[event.owner] = event.tasks


def _changed(before: int | None, now: int | None) -> int | None:
    return before if now is None else now or None


def read(store: EventStore, rules: Rules | None = None) -> Rules:
    """Return the rules after all events of the log; `rules` are those of an earlier read.

    A row that cannot be read is logged and skipped: one bad row must not stop the whole queue.
    """
    rules = rules or Rules()
    for row in store.iterate(STREAM, after=rules.version):
        whole = chain.follows(row, rules.version, rules.head)
        rules.version, rules.head = row.version, row.hash
        if not whole:
            log.error("%s", ChainError(STREAM, row.version, "it was changed, or not recorded by forge"))
            continue
        if not REGISTRY.knows(row):
            log.warning("%s@%d was recorded by a newer version: passed over", row.type, row.schema)
            continue
        try:
            event = REGISTRY.load(row)
        except PayloadError as error:
            log.error("%s", error)
            continue
        assert isinstance(event, LimitsChanged)
        rules.absorb(event)
    return rules


def change(
    store: EventStore,
    owner: str | None = None,
    weight: float | None = None,
    tasks: int | None = None,
    run_tasks: int | None = None,
) -> Rules:
    """Record new limits; return the rules with them. Raises ConfigError for invalid values."""
    _check(owner, weight, tasks, run_tasks)
    event = LimitsChanged(owner=owner, weight=weight, tasks=tasks, run_tasks=run_tasks)
    while True:
        rules = read(store)
        new = New(event, f"{STREAM}/{event.type}/{uuid.uuid4().hex}")
        try:
            store.append(STREAM, rules.version, [new], Cause(actor=actor()))
        except ConcurrencyError:
            continue
        return read(store, rules)


def _check(owner: str | None, weight: float | None, tasks: int | None, run_tasks: int | None) -> None:
    if weight is not None and not 0 < weight <= 1e6:
        raise ConfigError(f"weight {weight} is out of range: give one above 0, at most 1e6.")
    if owner is None and weight is not None:
        raise ConfigError("a weight is one user's: say whose, as in forge limits ada --weight 2.")
    if owner is not None and run_tasks is not None:
        raise ConfigError("--run-tasks holds for all users: leave out the user.")
    if owner is not None:
        plain_text.check_name(owner, "the user's name")
    if owner is not None and not owner.strip():
        raise ConfigError("the user's name is empty.")
    for number in (tasks, run_tasks):
        if number is not None and not 0 <= number <= 1_000_000:
            raise ConfigError(f"{number} tasks at once make no sense: give 1 or more, 0 for no limit.")
