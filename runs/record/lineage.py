"""Lineage: the events, and their data, that a crashed and an undisturbed run must share.

Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from events import canonical_json
from runs.record import events, user_events
from runs.record.device_setting import AUTO, with_device

#: Types of the events that luck, places and names decide; the lineage leaves them out.
OUTSIDE = frozenset(
    event.type
    for event in (
        events.TaskFailed,
        events.TaskDied,
        events.TaskQuarantined,
        events.DivergenceDetected,
        events.Completed,
        events.Forked,
        *user_events.WISHES,
    )
)

#: Fields of `started` that it leaves out: what was noted, and how long a training's segments are.
UNSHARED = frozenset({"warnings", "segment"})


def entry(type_: str, text: str, device: str = AUTO) -> str:
    """Return the hash of the part of an event's data that all runs of this seed must share.

    `device` is the one that the run pins; auto if it pins none or has not started.
    """
    told = shared(type_, json.loads(text), device)
    return hashlib.sha256(canonical_json(told).encode()).hexdigest()


def shared(type_: str, data: Mapping[str, Any], device: str = AUTO) -> dict[str, Any]:
    """Return the part of an event's data that all runs of this seed must share."""
    if type_ == events.Submitted.type:
        return {"config": with_device(data["config"], device)}
    left = events.LUCK | UNSHARED if type_ == events.Started.type else events.LUCK
    return {name: value for name, value in data.items() if name not in left}
