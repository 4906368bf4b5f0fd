"""The reason why a run waits, in words for people: its needs against what living devices offer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from runs.record.device_setting import CPU
from worker.queue.device_table import Device
from worker.queue.requirements import gpu_offers, needs


def reason(row: dict[str, Any], devices: Sequence[Device]) -> str:
    """Return why no device can take this run's tasks, or "" if a device can.

    `row` is a row of the run list.
    """
    if row["paused"] or row.get("past"):
        return "someone to resume it"
    living = [device for device in devices if device.living]
    if not living:
        return "a worker (none is connected)"
    wanted = needs(row["device"] or CPU, tuple(row["labels"].split()), None, gpu_offers(living))
    fitting = [d for d in living if d.offer.meets(wanted)]
    if not fitting:
        return _lacking(wanted.labels, living)
    if row["profile"] is not None:
        fitting = [d for d in fitting if d.offer.profile == row["profile"]]
        if not fitting:
            return f"a device with the profile {row['profile']} (none is connected)"
    if all(d.refuses(row["run"]) for d in fitting):
        return f"devices that can: {fitting[0].refused[row['run']][1]}"
    return ""


def unmet(labels: Iterable[str], devices: Sequence[Device]) -> list[str]:
    """Return the labels that no connected worker has; all labels if no worker is connected."""
    return sorted(frozenset(labels) - _offered([d for d in devices if d.living]))


def _offered(devices: Iterable[Device]) -> frozenset[str]:
    return frozenset[str]().union(*(device.offer.labels for device in devices))


def _lacking(wanted: Collection[str], living: Sequence[Device]) -> str:
    """Return in words what no connected worker offers: the missing labels, or all of them at once."""
    missing = unmet(wanted, living)
    if not missing:
        return f"one worker with all of {labelled(wanted)} (none is connected)"
    return f"a worker with {labelled(missing)} (none is connected)"


def labelled(labels: Iterable[str]) -> str:
    """Return labels in words: "the label demo", "the labels a and b", "a cpu"."""
    own = sorted(label for label in labels if ":" not in label)
    kinds = [f"a {label.partition(':')[2]}" for label in sorted(labels) if ":" in label]
    said = [f"the label{'s' if len(own) > 1 else ''} {' and '.join(own)}"] if own else []
    return " and ".join([*kinds, *said])
