"""Checks of runs: when a run's history was verified, by whom, and with which outcome.

The checks of a run are events of a stream of their own, `checks/RUN`: a check changes neither the chain
nor the state nor the digests of the run. Each check notes the run's chain head, so that a later check
finds a history that was cut or rewritten since.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from agent_forge.events import Event, EventsError, EventStore, Registry, chain
from agent_forge.runs.event_types import Count, Digest, EventPart
from agent_forge.runs.history.audit import Level

REGISTRY = Registry()

#: The first part of the streams' names.
STREAM = "checks"

#: The parts of an audit that judge the history; the others judge models and files.
OF_HISTORY = frozenset({"chain", "events", "decisions", "result", "children", "origins"})

Outcome = Literal["intact", "broken", "wrong", "unchecked"]


class CheckFinding(EventPart):
    """A finding of a check, as `runs.history.audit.Finding`."""

    level: Level
    check: str
    message: str
    place: Count | None = None


@REGISTRY.event
class RunChecked(Event):
    """A run was verified: its history, and on demand its models and measurements."""

    type = "run_checked"

    run: str
    #: Number of events in the whole history, a fork's past included.
    events: Count
    #: The last event of the run's own stream; the hash is missing if it is none.
    version: Count
    head: Digest | None
    #: The parts that were checked, such as chain, events and weights.
    checks: tuple[str, ...]
    #: Number of models that were made again from nothing; None: none were.
    rebuilt: Count | None = None
    #: Relative tolerance within which all was measured again; None: nothing was.
    tolerance: float | None = None
    #: Numbers of findings of these levels, and the first findings.
    errors: Count = 0
    unchecked: Count = 0
    findings: tuple[CheckFinding, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The outcome: broken (history), wrong (model or file), unchecked (history) or else intact."""
        if any(f.level == "error" and f.check in OF_HISTORY for f in self.findings):
            return "broken"
        if self.errors:
            return "wrong"
        of_history = [f for f in self.findings if f.check in OF_HISTORY]
        return "unchecked" if any(f.level == "unchecked" for f in of_history) else "intact"

    @property
    def reproduced(self) -> bool:
        """True if models were made again from nothing and came out equal."""
        weights = [f for f in self.findings if f.check == "weights" and f.level != "note"]
        return bool(self.rebuilt) and not self.errors and not weights


@dataclass(frozen=True)
class RecordedCheck:
    """A check, with the user and the time."""

    by: str
    at: str
    event: RunChecked


def stream_of(run: str) -> str:
    """Return the name of the stream of a run's checks: checks/RUN."""
    return f"{STREAM}/{run}"


def of_run(store: EventStore, run: str) -> Iterator[RecordedCheck]:
    """Yield the checks of a run, the oldest first.

    They end before an event that does not follow on the one before it: later events prove nothing. An
    event of a newer version is skipped.
    """
    head = chain.GENESIS
    for version, row in enumerate(store.iterate(stream_of(run))):
        if not chain.follows(row, version, head):
            return
        head = row.hash
        try:
            event = REGISTRY.load(row)
        except EventsError:
            continue
        if isinstance(event, RunChecked) and event.run == run:
            yield RecordedCheck(row.actor, row.recorded_at, event)
