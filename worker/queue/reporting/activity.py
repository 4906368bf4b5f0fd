"""Current activity of a run in words: tasks under way, what it waits for, the time left.

It comes from the tables of devices and leases and from the kind's outlook, not from the log. A run
whose tasks are runs does what these do: while a device works on one of them, it waits for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runs import kinds
from runs.kinds import wording
from runs.kinds.state import State
from runs.kinds.view import Outlook, outlook
from runs.panels.head import Live, OpenPart
from runs.record.journal import Child
from worker.queue.active_tasks import Hand
from worker.queue.reporting import wait_reason


@dataclass(frozen=True)
class Watched:
    """A run that has not ended, its row of the run list, and the hands that work on it."""

    state: State
    row: Mapping[str, Any] | None
    hands: Sequence[Hand]
    #: The kind's count of its tasks; without one the time left may be unknown.
    rehearsal: Any = None
    #: Its task in the run that delegates it; empty for a run of its own.
    task: str = ""

    @property
    def outlook(self) -> Outlook:
        """Return how far the run is, with the work of its hands."""
        under_way = [(hand.task, hand.seconds or 0.0) for hand in self.hands]
        return outlook(self.state, self.rehearsal, under_way)


def open_parts(state: State, children: Iterable[Child]) -> list[Child]:
    """Return the runs that a run delegates and that have not ended."""
    return [] if state.ended else [child for child in children if not child.state.ended]


def doing(run: Watched, parts: Sequence[Watched] = ()) -> str | None:
    """Return what the first hand does in words, and how many more there are; None without hands."""
    if not run.hands:
        part_words = ((part, doing(part)) for part in parts)
        return next((f"{_stage(run, part)}: {words}" for part, words in part_words if words), None)
    words = in_words(run.state, run.hands[0])
    return words if len(run.hands) == 1 else f"{words}, and {len(run.hands) - 1} more"


def in_words(state: State, hand: Hand) -> str:
    """Return the task of a hand in words."""
    return wording.task(state.kind, hand.task, wording.names(state)) or hand.task


def waits_for(
    run: Watched, devices: Sequence[Any], parts: Sequence[Watched] = ()
) -> tuple[str | None, str | None]:
    """Return what the run waits for, and the command that helps; None for what is not there.

    A run waits for nothing if it is worked on, if a run that it delegates is, or if it has ended.
    """
    if run.state.ended or run.row is None or run.hands or any(part.hands for part in parts):
        return None, None
    row = dict(run.row)
    if parts and not wait_reason.reason(row, devices):
        return waits_for(parts[0], devices)
    why = wait_reason.reason(row, devices) or wait_reason.busy(row, devices)
    if not why and kinds.of(run.state.kind).delegates and run.state.started is not None:
        return None, None  # its next run is about to begin
    return why or "a free worker", wait_reason.advice(row, devices) or None


def live(run: Watched, devices: Sequence[Any], parts: Sequence[Watched] = ()) -> Live | None:
    """Return what a run does now, for its head; None if it has ended."""
    if run.state.ended:
        return None
    run_outlook = run.outlook
    waits, helps = waits_for(run, devices, parts)
    return Live(
        doing=doing(run, parts),
        at_work=len(run.hands) + sum(len(part.hands) for part in parts),
        waits_for=waits,
        helps=helps,
        inside=run_outlook.inside,
        eta_s=None if run.state.paused else run_outlook.eta_s,
        progress=progress(run.state, run_outlook),
        part=part(run, parts),
    )


def part(run: Watched, parts: Sequence[Watched]) -> OpenPart | None:
    """Return the run that a run delegates and that is worked on, else the first that waits."""
    newest = next((candidate for candidate in parts if candidate.hands), next(iter(parts), None))
    if newest is None:
        return None
    part_outlook = newest.outlook if newest.state.started is not None else None
    paused = run.state.paused or newest.state.paused
    return OpenPart(
        run=newest.state.run,
        name=_stage(run, newest),
        inside=part_outlook.inside if part_outlook else None,
        eta_s=None if part_outlook is None or paused else part_outlook.eta_s,
        progress="" if part_outlook is None else part_outlook.words(ended=paused),
    )


def _stage(run: Watched, part: Watched) -> str:
    return kinds.of(run.state.kind).stage_of(run.state, part.task)


def progress(state: State, run_outlook: Outlook) -> str:
    """Return in words how far a run is, and the time left if it goes on."""
    return run_outlook.words(ended=state.ended or state.paused)
