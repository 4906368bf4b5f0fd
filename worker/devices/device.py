"""A device's thread: it claims the task granted to it, has a child process do it, and watches.

`Process` is the parent's side of the child process (`worker.devices.child_main`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from agent_forge.events import Cause, EventsError, EventStore, New
from agent_forge.events.envelope import Plain
from agent_forge.runs.errors import ForgeError
from agent_forge.runs.history.repository import load, named_stream
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.decide import open_tasks, whole_key
from agent_forge.runs.lists import queries
from agent_forge.runs.record.events import ENDED, TaskDied
from agent_forge.runs.system.child_environment import child_environment
from agent_forge.runs.system.linked_processes import tied
from agent_forge.worker.queue.device_table import DeviceTable, Placement, kind_label
from agent_forge.worker.queue.leases import Leases, here, myself
from agent_forge.worker.queue.scheduler import Offer

log = logging.getLogger(__name__)

#: Seconds between two looks at the grant if no wake-up comes, and between two looks at the child.
LOOK, WATCH = 1.0, 0.5
#: Seconds that a run is refused after it could not be worked on here: the first time, and at most.
REFUSE, REFUSE_MOST = 2.0, 300.0
#: Seconds after which a device that is still starting does not count.
STARTING = 300
#: Number of tasks after which a child process is replaced.
TASKS_PER_PROCESS = 1000

#: Called after a task with run, task, and the child's report (how it ended, seconds, …).
Watcher = Callable[[str, str, dict[str, object]], None]


class Slot(threading.Thread):
    """One device of this worker: a thread with a child process that does the tasks."""

    def __init__(
        self,
        home: Home,
        placement: Placement,
        labels: frozenset[str] = frozenset(),
        only: bool = False,
        watch: Watcher = lambda run, task, outcome: None,
    ) -> None:
        name = f"{here().partition(':')[0]}/{placement.name}"
        super().__init__(name=name, daemon=True)
        self.placement = placement
        self._labels = labels | {kind_label(placement.device)}
        self._only = only
        self._watch = watch
        self._store: EventStore = home.open_store()
        self._roster = DeviceTable(self._store.database)
        self._owner = myself(placement.name)
        self._leases = Leases(self._store.database, self._owner)
        self._first_name = name
        self.name = self._roster.enter(name, self._owner, placement.device)
        self._bell = threading.Event()
        self._stopping = threading.Event()
        self._killed = threading.Event()
        self._process: Process | None = None
        self._offer: Offer | None = None
        #: True if this device's row in the device table has its current offer.
        self._entered = False
        self._refused: dict[str, tuple[float, str]] = {}
        self._refusals: dict[str, int] = {}
        self._done = 0
        #: Held while the status is written: the heartbeat's thread may enter the device again.
        self._lock = threading.RLock()
        #: The lease of the task under way.
        self.task: str | None = None
        #: When the device was last busy or made ready, by `time.monotonic()`; or has to be ready.
        self.busy_at = time.monotonic() + STARTING
        #: How far the task is, in words.
        self._pace = ""

    # ---- called by the crew ----------------------------------------------------------------

    def ring(self) -> None:
        """Wake the device's thread: there may be a task for it."""
        self._bell.set()

    def doing(self) -> str | None:
        """Return the current task as "NAME/TASK", by the name of its run; None without a task."""
        run, _, task = (self.task or "").partition("/")
        return f"{queries.name(self._store, run)}/{task}" if run else None

    def stop(self) -> None:
        """Make the thread end after the current task, or at the end of its next piece."""
        self._stopping.set()
        self._bell.set()

    def kill(self) -> None:
        """Make the thread end at once; the current task is given back."""
        self._killed.set()
        self.stop()

    def beat(self) -> None:
        """Renew the task's lease and the device's row. Raises StoreUnavailableError."""
        task = self.task
        if task is not None:
            self._leases.renew([task], self._pace)
        with self._lock:
            if not self._roster.beat(self.name, self._owner) and not self._stopping.is_set():
                self._enter()

    # ---- the device's own thread -----------------------------------------------------------

    def run(self) -> None:
        """Take turns until the device is stopped, then leave the device table."""
        try:
            while not self._stopping.is_set():
                try:
                    self._turn()
                except (EventsError, ForgeError) as error:
                    log.warning("device %s: %s", self.name, error)
                    self._stopping.wait(LOOK)
                except Exception:  # a defect must not take the device away for good
                    log.exception("device %s", self.name)
                    self._stopping.wait(5)
        finally:
            if self._process is not None:
                self._process.end()
            try:
                self._roster.leave(self.name, self._owner)
            except EventsError as error:
                log.warning("device %s is still listed: %s", self.name, error)
            self._store.close()

    def _turn(self) -> None:
        """Start the child process if needed, then look once for a grant and do the granted task."""
        if self._process is not None and not self._process.living():
            self._lost()
            self._roster.say(self.name, self._owner, "starting")
        if self._process is None and not self._begin():
            return
        if not self._entered:
            with self._lock:
                self._enter()
        granted = self._roster.grant_of(self.name, self._owner)
        if granted is not None:
            self._do(*granted)
            return
        self._bell.wait(LOOK)
        self._bell.clear()

    def _begin(self) -> bool:
        """Start the device's process and keep its offer; return True if it is ready."""
        actor = {"FORGE_WORKER": f"worker/{self.name}"}
        process = Process({**self.placement.env, **actor})
        try:
            while (answer := process.answer(WATCH)) is None:
                if self._stopping.is_set():
                    process.end()
                    return False
        except EOFError:
            log.error("device %s: its process %s before it was ready", self.name, process.wait())
            self._stopping.wait(5)
            return False
        offer = answer["offer"]
        self._offer = Offer(self._labels, offer["memory"], offer["profile"], self._only)
        self._process, self._entered, self.busy_at = process, False, time.monotonic()
        return True

    def _lost(self) -> None:
        """Drop a process that died between two tasks; the next turn starts another."""
        assert self._process is not None
        log.warning("device %s: its idle process was %s", self.name, self._process.wait())
        self._process = None

    def _enter(self) -> None:
        """Write the device's row with its offer; enter the table again if the row is gone."""
        self._entered = False
        if not self._roster.beat(self.name, self._owner):  # the device was wrongly taken for dead
            self.name = self._roster.enter(self._first_name, self._owner, self.placement.device)
        if self._offer is not None:
            self._roster.offers(self.name, self._owner, self._offer)
            status = "busy" if self.task else "idle" if self._process else "starting"
            self._entered = self._roster.say(self.name, self._owner, status)

    def _do(self, run: str, task: str) -> None:
        """Claim a task, let the process do it, and release its lease even after an error."""
        lease = f"{run}/{task}"
        with self._lock:
            busy = self._roster.saying(self.name, self._owner, "busy", run=run, task=task)
            fence = self._leases.claim(lease, busy)
            self.task = lease if fence is not None else None
        if fence is None:  # another owner holds the task
            self._roster.say(self.name, self._owner, "idle", grant_run=None, grant_task=None)
            return
        outcome: dict[str, object] = {"ended": "given back", "seconds": 0.0, "why": ""}
        try:
            outcome = self._watched(run, task, lease, fence)
        finally:
            self._given_back(lease, run, outcome)
            self._watch(run, task, outcome)

    def _given_back(self, lease: str, run: str, outcome: Plain) -> None:
        """Release the lease and write the new status; refuse the run if the task was refused."""
        if outcome["ended"] == "refused":
            self._refuse(run, outcome["why"])
        elif outcome["ended"] in ("done", "known"):
            self._refusals.pop(run, None)
        self._done += outcome["ended"] in ("done", "known")
        free = {"grant_run": None, "grant_task": None, "run": None, "task": None}
        with self._lock:
            self.task, self.busy_at = None, time.monotonic()
            self._entered = self._entered and self._process is not None
            status = "idle" if self._entered else "starting"
            status = "stopping" if self._stopping.is_set() else status
            status_update = self._roster.saying(self.name, self._owner, status, done=self._done, **free)
            self._leases.release(lease, status_update)

    def _refuse(self, run: str, why: str) -> None:
        """Refuse a run for a while, twice as long each time, at most `REFUSE_MOST` seconds."""
        count = self._refusals[run] = self._refusals.get(run, 0) + 1
        now = self._roster.now()
        until = now + min(REFUSE * 2 ** min(count - 1, 20), REFUSE_MOST)
        self._refused = {k: v for k, v in self._refused.items() if v[0] > now}
        self._refused[run] = (until, why)
        self._roster.refuse(self.name, self._owner, self._refused)
        name = queries.name(self._store, run)
        log.warning("device %s cannot work on run %s: %s", self.name, name, why)

    def _watched(self, run: str, task: str, lease: str, fence: int) -> dict[str, object]:
        """Send the task to the process and wait; return a JSON report of how the task ended.

        The wait ends with the process's answer or death, the end of the run, or this device's kill. A
        device that is being stopped asks the process to end the task at its next piece.
        """
        process = self._process
        assert process is not None
        began, stream = time.monotonic(), named_stream(self._store, run)
        version = self._store.version(stream)
        order = {"run": run, "task": task, "lease": lease, "fence": fence, "owner": self._owner}
        outcome: dict[str, object] = {"ended": "given back", "why": "", "seconds": 0.0}
        self._pace, is_asked = "", False
        try:
            process.tell(order)
        except BrokenPipeError:  # the process died earlier: not a death at this task
            self._lost()
            return outcome
        try:
            while (answer := process.answer(WATCH)) is None or "pace" in answer:
                self._pace = answer["pace"] if answer else self._pace
                if self._stopping.is_set() and not is_asked:
                    process.end_soon()
                    is_asked = True
                ended, version = self._run_ended(stream, version)
                if self._killed.is_set() or ended:
                    self._replace()
                    return {**outcome, "seconds": time.monotonic() - began}
        except EOFError:
            how = process.wait()
            self._process = None
            self._record_death(run, task, lease, fence, how)
            return {**outcome, "ended": "died", "why": how, "seconds": time.monotonic() - began}
        except Exception:  # the process's answer would be taken for that of the next task
            self._replace()
            raise
        if answer.get("stale") or process.tasks >= TASKS_PER_PROCESS:
            self._replace()
        return answer

    def _replace(self) -> None:
        """Kill the process; the next turn starts another."""
        if self._process is not None:
            self._process.end()
        self._process = None

    def _run_ended(self, stream: str, version: int) -> tuple[bool, int]:
        """Return (True if the run has ended after `version`, the last version that was read)."""
        ended = False
        try:
            for row in self._store.iterate(stream, after=version):
                ended |= row.type in ENDED
                version = row.version
        except EventsError:
            return False, version  # the log cannot be read: assume that the run goes on
        return ended, version

    def _record_death(self, run: str, task: str, lease: str, fence: int, how: str) -> None:
        """Record the process's death at a task, if this device still holds the task's lease.

        Nothing is recorded if the device was killed, or if the run does not wait for the task.
        """
        name = queries.name(self._store, run)
        log.warning("device %s: the process of %s/%s was %s", self.name, name, task, how)
        if self._killed.is_set() or not self._leases.holds(lease, fence, self._owner):
            return
        state = load(self._store, run)
        if task not in {open_.key for open_ in open_tasks(state)}:
            return
        task = whole_key(task)
        before = state.deaths.get(task)
        attempt = before.attempt + 1 if before else 1
        event = TaskDied(task=task, attempt=attempt, how=how)
        new = New(event, f"{run}/{task}/died/{attempt}")
        self._store.append(state.stream, None, [new], Cause(actor=f"worker/{self.name}"))


class Process:
    """A device's process (`worker.devices.child_main`), spawned, so that CUDA is never forked."""

    def __init__(self, env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            tied([sys.executable, "-m", "agent_forge.worker.devices.child_main"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**child_environment("device"), **env},
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="reader", daemon=True).start()
        #: Number of tasks that the process was sent.
        self.tasks = 0

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def living(self) -> bool:
        """Return True if the process has not ended."""
        return self._process.poll() is None

    def tell(self, order: dict[str, object]) -> None:
        """Send the process a task. Raises BrokenPipeError if it died and never received the task."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order) + "\n")
        self.tasks += 1

    def end_soon(self) -> None:
        """Ask the process to end its task after the piece under way."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it has died, as the next answer says
            self._process.stdin.write("{}\n")

    def answer(self, seconds: float) -> Plain | None:
        """Return the process's next line as JSON; None after `seconds`. Raises EOFError if it died."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            return None
        if line is None or not line.endswith("\n"):
            self._lines.put(None)
            raise EOFError
        return json.loads(line)

    def end(self) -> str:
        """Kill the process if it lives; return words for its end, with signal or exit code."""
        self._process.kill()
        code = self._process.wait()
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        if code < 0:
            return f"killed by signal {-code} ({signal.Signals(-code).name})"
        return f"ended with exit code {code}"

    def wait(self) -> str:
        """Return the end, in words, of a process that died or closed its output; kill it after 5 s."""
        with contextlib.suppress(subprocess.TimeoutExpired):  # it closed its output and lives on
            self._process.wait(5)
        return self.end()
