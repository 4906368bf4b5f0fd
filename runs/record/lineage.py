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

#: The rules that digests follow, the newest first. 1, by which runs of version 0.2.0 ended: names of
#: models stand in the digest. 2: no name of a run, a model or a folder does. No event says which rule
#: its digest follows: it must follow one of them.
RULES = (2, 1)
NEWEST = RULES[0]


def entry(type_: str, text: str) -> str:
    """Return the hash of the part of an event's data that all runs of this seed must share."""
    return digest(shared(type_, json.loads(text)))


def digest(data: Any) -> str:
    """Return the hash of data."""
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()


def shared(
    type_: str, data: Mapping[str, Any], rule: int = NEWEST, device: str = AUTO
) -> dict[str, Any]:
    """Return the part of an event's data that all runs of this seed must share, by a rule.

    `device` is the one that the run pins; auto if it pins none or has not started.
    """
    if type_ == events.Submitted.type:
        return {"config": with_device(data["config"], device)}
    left = events.LUCK | UNSHARED if type_ == events.Started.type else events.LUCK
    whole = {name: value for name, value in data.items() if name not in left}
    return _nameless(whole) if type_ == events.Started.type and rule > 1 else whole


def _nameless(value: Any) -> Any:
    """Return the data of `started` without the names of pinned models."""
    if isinstance(value, list):
        return [_nameless(member) for member in value]
    if not isinstance(value, dict):
        return value
    pinned = {"recipe_id", "digest"} <= value.keys() or "source" in value
    return {
        key: _nameless(member) for key, member in value.items() if not (pinned and key == "name")
    }
