"""The reason why a run waits, in words for people: its needs against what living devices offer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from runs.record.device_setting import CPU
from worker.queue.device_table import Device
from worker.queue.requirements import gpu_offers, needs
from worker.queue.scheduler import Needs


def reason(row: dict[str, Any], devices: Sequence[Device]) -> str:
    """Return why no device can take this run's tasks, or "" if a device can.

    `row` is a row of the run list.
    """
    if row["paused"] or row.get("past"):
        return "someone to resume it"
    living = [device for device in devices if device.living]
    if not living:
        return "a worker (none is connected)"
    run_needs, fitting = _fitting(row, living)
    if not fitting:
        return _lacking(run_needs.labels, living)
    if row["profile"] is not None:
        fitting = [d for d in fitting if d.offer.profile == row["profile"]]
        if not fitting:
            return f"a device with the profile {row['profile']} (none is connected)"
    if all(d.refuses(row["run"]) for d in fitting):
        return f"devices that can: {fitting[0].refused[row['run']][1]}"
    return ""


def told(
    rows: Sequence[dict[str, Any]], devices: Sequence[Device], held: Collection[str]
) -> list[dict[str, Any]]:
    """Return rows of the queue with `waits_for` and `helps`; empty texts for a run that is worked on.

    `held` has the tasks that devices and processes hold, as RUN/TASK. A run is worked on if a run that
    it delegates is; a run whose next task is about to be granted waits for nothing.
    """
    working = {task.partition("/")[0] for task in held}
    working |= {device.run for device in devices if device.living and device.run}
    parents = {row["part_of"] for row in rows}
    full_rows = []
    for row in rows:
        why = reason(row, devices)
        if not why and row["run"] not in working and row["run"] not in parents:
            why = busy(row, devices)
        full_rows.append({**row, "waits_for": why, "helps": advice(row, devices) if why else ""})
    return full_rows


def busy(row: dict[str, Any], devices: Sequence[Device]) -> str:
    """Return what a run waits for whose devices all work for other runs, or "" if one is free."""
    living = [device for device in devices if device.living]
    fitting = _fitting(row, living)[1]
    working = [d for d in fitting if d.run is not None and d.status == "busy"]
    if not fitting or len(working) < len(fitting):
        return ""
    first = f"{working[0].name} works on {working[0].run_name}"
    return f"a free worker: {first}" + (f", {len(working) - 1} more work" if working[1:] else "")


def advice(row: dict[str, Any], devices: Sequence[Device]) -> str:
    """Return the command that gives a waiting run a worker, or "" if no command does."""
    if row["paused"] or row.get("past"):
        return f"forge resume {row['name']}"
    living = [device for device in devices if device.living]
    run_needs, fitting = _fitting(row, living)
    if fitting:
        return ""
    labels = ",".join(sorted(label for label in run_needs.labels if ":" not in label))
    return "forge worker" + (f" --queues {labels}" if labels else "")


def _fitting(row: dict[str, Any], living: Sequence[Device]) -> tuple[Needs, list[Device]]:
    """Return what a run needs of a device, and the living devices that offer it."""
    run_needs = needs(row["device"] or CPU, tuple(row["labels"].split()), None, gpu_offers(living))
    return run_needs, [d for d in living if d.offer.meets(run_needs)]


def unmet(labels: Iterable[str], devices: Sequence[Device]) -> list[str]:
    """Return the labels that no connected worker has; all labels if no worker is connected."""
    return sorted(frozenset(labels) - _offered([d for d in devices if d.living]))


def _offered(devices: Iterable[Device]) -> frozenset[str]:
    return frozenset[str]().union(*(device.offer.labels for device in devices))


def _lacking(labels: Collection[str], living: Sequence[Device]) -> str:
    """Return in words what no connected worker offers: the missing labels, or all of them at once."""
    missing = unmet(labels, living)
    if not missing:
        return f"one worker with all of {labelled(labels)} (none is connected)"
    return f"a worker with {labelled(missing)} (none is connected)"


def labelled(labels: Iterable[str]) -> str:
    """Return labels in words: "the label demo", "the labels a and b", "a cpu"."""
    names = sorted(label for label in labels if ":" not in label)
    kinds = [f"a {label.partition(':')[2]}" for label in sorted(labels) if ":" in label]
    words = [f"the label{'s' if len(names) > 1 else ''} {' and '.join(names)}"] if names else []
    return " and ".join([*kinds, *words])
