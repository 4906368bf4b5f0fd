"""Current activity of a run in words: tasks under way, why it waits, the time left.

Activity comes from the tables of devices and leases and from the kind's outlook, not from the log. A
run that delegates is busy while a device works on one of its runs. The reason why a run waits compares
its needs with what living devices offer. Tasks are counted in the background, once a run.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from agent_forge.events.envelope import Data, Plain
from agent_forge.runs import kinds
from agent_forge.runs.kinds import wording
from agent_forge.runs.kinds.state import State
from agent_forge.runs.kinds.view import Outlook, outlook
from agent_forge.runs.panels.head import Live, OpenPart
from agent_forge.runs.record.device_setting import CPU
from agent_forge.runs.record.lineage import Child
from agent_forge.worker.queue.device_table import Device, Hand, gpu_offers, needs
from agent_forge.worker.queue.scheduler import DeviceNeeds

log = logging.getLogger(__name__)

#: Runs whose count of tasks is kept.
KEPT = 64


@dataclass(frozen=True)
class WatchedRun:
    """A run that has not ended, its row of the run list, and the hands that work on it."""

    state: State
    row: Data | None
    hands: Sequence[Hand]
    #: The kind's count of its tasks; without one the time left may be unknown.
    rehearsal: object = None
    #: Its task in the run that delegates it; empty for a run of its own.
    task: str = ""

    @property
    def outlook(self) -> Outlook:
        """Progress and time left of the run, with the work of its hands."""
        under_way = [(hand.task, hand.seconds or 0.0) for hand in self.hands]
        return outlook(self.state, self.rehearsal, under_way)


def open_parts(state: State, children: Iterable[Child]) -> list[Child]:
    """Return a list of the children that have not ended; [] if the run itself has ended."""
    return [] if state.ended else [child for child in children if not child.state.ended]


def doing(run: WatchedRun, parts: Sequence[WatchedRun] = ()) -> str | None:
    """Return words for the first hand's task and how many more; without hands, a part's, or None."""
    if not run.hands:
        part_words = ((part, doing(part)) for part in parts)
        return next((f"{_stage(run, part)}: {words}" for part, words in part_words if words), None)
    words = in_words(run.state, run.hands[0])
    return words if len(run.hands) == 1 else f"{words}, and {len(run.hands) - 1} more"


def in_words(state: State, hand: Hand) -> str:
    """Return words for a hand's task, with its pace if that is known."""
    words = wording.task(state.kind, hand.task, wording.names(state)) or hand.task
    return f"{words}: {hand.pace}" if hand.pace else words


def waits_for(
    run: WatchedRun, devices: Sequence[Device], parts: Sequence[WatchedRun] = ()
) -> tuple[str | None, str | None]:
    """Return (what the run waits for, the command that helps); None for a missing part.

    A run waits for nothing if it is worked on, if a run that it delegates is, or if it has ended.
    """
    if run.state.ended or run.row is None or run.hands or any(part.hands for part in parts):
        return None, None
    row = dict(run.row)
    if parts and not reason(row, devices):
        return waits_for(parts[0], devices)
    why = reason(row, devices) or busy(row, devices)
    if not why and kinds.of(run.state.kind).children and run.state.started is not None:
        return None, None  # its next run is about to begin
    return why or "a free worker", advice(row, devices) or None


def live(run: WatchedRun, devices: Sequence[Device], parts: Sequence[WatchedRun] = ()) -> Live | None:
    """Return the current activity of a run for its page's head; None if it has ended."""
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


def part(run: WatchedRun, parts: Sequence[WatchedRun]) -> OpenPart | None:
    """Return the first delegated run that is worked on, else the first that waits; None without any."""
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


def _stage(run: WatchedRun, part: WatchedRun) -> str:
    children = kinds.of(run.state.kind).children
    return part.task if children is None else children.stage_of(run.state, part.task)


def progress(state: State, run_outlook: Outlook) -> str:
    """Return words for the progress of a run, and the time left if it goes on."""
    return run_outlook.words(ended=state.ended or state.paused)


def reason(row: Data, devices: Sequence[Device]) -> str:
    """Return why no device can take this run's tasks, as words; "" if a device can.

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


def told(rows: Sequence[Data], devices: Sequence[Device], held: Collection[str]) -> list[Plain]:
    """Return rows of the queue with `waits_for` and `helps`, both "" for a run that is worked on.

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


def busy(row: Data, devices: Sequence[Device]) -> str:
    """Return words: all devices that fit a run work for other runs; "" if one is free or none fits."""
    living = [device for device in devices if device.living]
    fitting = _fitting(row, living)[1]
    working = [d for d in fitting if d.run is not None and d.status == "busy"]
    if not fitting or len(working) < len(fitting):
        return ""
    first = f"{working[0].name} works on {working[0].run_name}"
    return f"a free worker: {first}" + (f", {len(working) - 1} more work" if working[1:] else "")


def advice(row: Data, devices: Sequence[Device]) -> str:
    """Return the command that gives a waiting run a worker; "" if no command does."""
    if row["paused"] or row.get("past"):
        return f"forge resume {row['name']}"
    living = [device for device in devices if device.living]
    run_needs, fitting = _fitting(row, living)
    if fitting:
        return ""
    labels = ",".join(sorted(label for label in run_needs.labels if ":" not in label))
    return "forge worker" + (f" --queues {labels}" if labels else "")


def _fitting(row: Data, living: Sequence[Device]) -> tuple[DeviceNeeds, list[Device]]:
    """Return (needs of a run, the living devices that meet them)."""
    run_needs = needs(row["device"] or CPU, tuple(row["labels"].split()), None, gpu_offers(living))
    return run_needs, [d for d in living if d.offer.meets(run_needs)]


def unmet(labels: Iterable[str], devices: Sequence[Device]) -> list[str]:
    """Return a sorted list of the labels that no connected worker has; of all if none is connected."""
    return sorted(frozenset(labels).difference(*(d.offer.labels for d in devices if d.living)))


def _lacking(labels: Collection[str], living: Sequence[Device]) -> str:
    """Return words for what no connected worker offers: missing labels, or all of them at once."""
    missing = unmet(labels, living)
    if not missing:
        return f"one worker with all of {labelled(labels)} (none is connected)"
    return f"a worker with {labelled(missing)} (none is connected)"


def labelled(labels: Iterable[str]) -> str:
    """Return labels as words: "the labels a and b"; "a cpu" for "device:cpu"; "" for none."""
    names = sorted(label for label in labels if ":" not in label)
    kinds = [f"a {label.partition(':')[2]}" for label in sorted(labels) if ":" in label]
    words = [f"the label{'s' if len(names) > 1 else ''} {' and '.join(names)}"] if names else []
    return " and ".join([*kinds, *words])


class Rehearsals:
    """A cache of each run's task count, computed once in a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Future[object]] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, "rehearsal")

    def of(self, state: State) -> object:
        """Return the run's task count; None while it is computed, from now on, or if it is unknown."""
        kind = kinds.of(state.kind)
        if not kind.view.rehearsable(state):
            return None
        with self._lock:
            future = self._known.pop(state.run, None)
            if future is None:
                # The rehearsal reads what never changes again once a run has started.
                begun = type(state)(run=state.run, submitted=state.submitted, started=state.started)
                future = self._thread.submit(kind.view.rehearse, begun)
            self._known[state.run] = future
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        if not future.done():
            return None
        if error := future.exception():
            log.warning("run %s cannot be rehearsed: %s", state.run, error)
            return None
        return future.result()

    def close(self, wait: bool = False) -> None:
        """End the thread; with `wait` after the counts that were begun."""
        self._thread.shutdown(wait=wait, cancel_futures=not wait)
