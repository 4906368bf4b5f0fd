"""Why a run waits: what it needs, and what living devices offer. For people; nothing decides by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from worker.capability import needs
from worker.roster import Device


def reason(row: dict[str, Any], devices: Sequence[Device]) -> str:
    """Why no device could take this run's tasks, or "" where one could. `row` is of the run list."""
    if row["paused"]:
        return "somebody to resume it"
    living = [device for device in devices if device.living]
    if not living:
        return "a worker"
    wanted = needs(row["device"] or "cpu", tuple(row["labels"].split()), None)
    fitting = [d for d in living if d.offer.meets(wanted)]
    if not fitting:
        offered = frozenset().union(*(d.offer.labels for d in living))
        missing = sorted(wanted.labels - offered)
        return f"a device with {' and '.join(missing or sorted(wanted.labels))}"
    if row["profile"] is not None:
        fitting = [d for d in fitting if d.offer.profile == row["profile"]]
        if not fitting:
            return f"a device with the profile {row['profile']}"
    if all(d.refuses(row["run"]) for d in fitting):
        return f"devices that can: {fitting[0].refused[row['run']][1]}"
    return ""
