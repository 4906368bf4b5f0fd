"""What a crashed and an undisturbed run must share: which events, and what of them. Pure."""

from __future__ import annotations

import hashlib
import json

from events import canonical_json
from evomerge import facts

#: Events that luck, places and names decide.
OUTSIDE = frozenset(
    event.type
    for event in (
        facts.Profiled,
        facts.TaskFailed,
        facts.TaskDied,
        facts.TaskQuarantined,
        facts.DivergenceDetected,
        facts.Completed,
        facts.Forked,
        facts.Paused,
        facts.Resumed,
        facts.Cancelled,
        facts.Retried,
        facts.PriorityChanged,
        facts.Exported,
        facts.Imported,
    )
)


def entry(type_: str, text: str) -> str:
    """Hash of what of an event's data every run of this seed must share."""
    data = {k: v for k, v in json.loads(text).items() if k not in facts.LUCK}
    if type_ == facts.Submitted.type:
        data = {"config": data["config"]}
    if type_ == facts.Started.type:
        data.pop("warnings")
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()
