"""Current activity of a run in words: tasks under way, what it waits for, the time left.

It comes from the tables of devices and leases and from the kind's outlook, not from the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runs import kinds
from runs.kinds import wording
from runs.kinds.state import State
from runs.kinds.view import Outlook
from runs.panels.head import Live
from worker.queue.active_tasks import Hand
from worker.queue.reporting import wait_reason


def doing(state: State, hands: Sequence[Hand]) -> str | None:
    """Return what the first hand does in words, and how many more there are; None without hands."""
    if not hands:
        return None
    words = in_words(state, hands[0])
    return words if len(hands) == 1 else f"{words}, and {len(hands) - 1} more"


def in_words(state: State, hand: Hand) -> str:
    """Return the task of a hand in words."""
    return wording.task(state.kind, hand.task, wording.names(state)) or hand.task


def waits_for(
    state: State, row: Mapping[str, Any] | None, hands: Sequence[Hand], devices: Sequence[Any]
) -> str | None:
    """Return what the run waits for, or None if it is worked on or has ended.

    `row` is its row of the run list.
    """
    if state.ended or hands or row is None:
        return None
    return wait_reason.reason(dict(row), devices) or "a free worker"


def live(
    state: State,
    row: Mapping[str, Any] | None,
    hands: Sequence[Hand],
    devices: Sequence[Any],
    rehearsal: Any = None,
) -> Live | None:
    """Return what a run does now, for its head; None if it has ended.

    `rehearsal` is the kind's count of its tasks; without one the time left may be unknown.
    """
    if state.ended:
        return None
    under_way = [(hand.task, hand.seconds or 0.0) for hand in hands]
    seen = kinds.of(state.kind).outlook(state, rehearsal, under_way)
    return Live(
        doing=doing(state, hands),
        at_work=len(hands),
        waits_for=waits_for(state, row, hands, devices),
        inside=seen.inside,
        eta_s=None if state.paused else seen.eta_s,
        progress=progress(state, seen),
    )


def progress(state: State, seen: Outlook) -> str:
    """Return in words how far a run is, and the time left if it goes on."""
    return seen.words(ended=state.ended or state.paused)
