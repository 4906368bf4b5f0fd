"""The dispatcher: one thread among all workers follows the log and grants tasks to devices.

The dispatcher holds a lease; when it dies, another worker takes over. It knows everything from the log,
the device table and the leases: folded states and open tasks of runs, and the device that built each
candidate, where an evaluation needs no transfer and no rebuild. Only the service that users have
received would be lost with it: a table keeps that from time to time. Two dispatchers at once are
harmless: a device takes one grant, a task has one lease, and an event has one key.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from agent_forge.events import Cause, Envelope, EventsError, EventStore, StoreUnavailableError
from agent_forge.runs import kinds
from agent_forge.runs.errors import ForgeError
from agent_forge.runs.history import repository
from agent_forge.runs.history.run_cache import RunCache
from agent_forge.runs.kinds.decide import Delegate, Task, decide, whole
from agent_forge.runs.kinds.kind import Kind
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists import queries
from agent_forge.runs.record import events
from agent_forge.runs.record.device_setting import AUTO
from agent_forge.runs.streams import run_of
from agent_forge.worker.append import append_facts, project, project_after
from agent_forge.worker.commands import delegation, user_limits
from agent_forge.worker.queue.bookkeeping import Backoff, Flight, Measures, ServiceTable, WaitingRuns
from agent_forge.worker.queue.device_table import Device, DeviceTable, gpu_offers, needs
from agent_forge.worker.queue.leases import Leases, myself
from agent_forge.worker.queue.scheduler import DeviceNeeds, Offer, QueuedRun, Scheduler

log = logging.getLogger(__name__)

#: The dispatcher's lease, and the seconds that it lasts at most without a heartbeat.
LEASE, LIFETIME = "@dispatcher", 10.0
#: Seconds between two steps: while devices work, and while there is nothing to do.
BUSY, QUIET = 0.02, 0.1
#: Seconds between two looks at runs without new events.
LOOK = 0.1
#: Seconds that a device has to claim a granted task.
UNCLAIMED = 10.0

Ring = Callable[[str, str, str], None]


class Dispatcher(threading.Thread):
    """The dispatcher's thread; `step` is one turn of it."""

    def __init__(self, store: EventStore, ring: Ring, name: str) -> None:
        super().__init__(name="dispatcher", daemon=True)
        self._store = store
        self._ring = ring
        self._context = Cause(actor=f"worker/{name}")
        self._leases = Leases(store.database, myself(f"dispatcher {name}"))
        self._leases.lifetime = min(LIFETIME, self._leases.lifetime)
        self._roster = DeviceTable(store.database)
        self._received = ServiceTable(store.database)
        self._nudged = threading.Event()
        self._stopping = threading.Event()
        self.measures = Measures()
        self._reset()

    def _reset(self) -> None:
        """Clear all runs, tasks and users; `_take_over` reads them again."""
        self._scheduler = Scheduler()
        self._rules = user_limits.Rules()
        self._runs = WaitingRuns(self._store)
        self._desk = DispatcherCache(self._store, self._context)
        self._changed: set[str] = set()
        self._flights: dict[str, Flight] = {}
        #: Runs whose history cannot be read here, until something is recorded for them.
        self._aside: set[str] = set()
        #: Offers of living GPUs, which decide what runs with the device auto need.
        self._gpus: frozenset[Offer] = frozenset()
        self._after = 0
        #: The users' tags that were written last to the table.
        self._told: dict[str, float] | None = None
        self._renewed = self._noted = self._looked = 0.0
        self.measures.leads = False

    # ---- the thread ------------------------------------------------------------------------

    def nudge(self) -> None:
        """Start the next step at once, because something has happened on this worker."""
        self._nudged.set()

    def stop(self) -> None:
        """Make the thread end, and let another worker take over."""
        self._stopping.set()
        self._nudged.set()

    def run(self) -> None:
        """Take steps until the thread is stopped; then release the lease."""
        while not self._stopping.is_set():
            wait = 1.0
            try:
                if self._leads():
                    granted = self.step()
                    wait = BUSY if granted or self._flights else QUIET
            except StoreUnavailableError as error:
                log.warning("nothing was dispatched: %s", error)
                self._reset()
            except Exception:  # a defect must not end the queue for all users
                log.exception("nothing was dispatched")
                self._reset()
                wait = 5.0
            self._nudged.wait(wait)
            self._nudged.clear()
        try:
            if self.measures.leads:
                self._note_received()
                self._leases.release(LEASE)
        except EventsError as error:
            log.warning("the next dispatcher has to wait: %s", error)
        self._store.close()

    def _leads(self) -> bool:
        """Claim or renew the dispatcher's lease; return True if this worker dispatches."""
        now = time.monotonic()
        if self.measures.leads and now - self._renewed < self._leases.lifetime / 6:
            return True
        if self._leases.claim(LEASE) is None:
            if self.measures.leads:
                self._reset()
            return False
        self._renewed = now
        if not self.measures.leads:
            self._take_over()
        return True

    def _take_over(self) -> None:
        """Read the waiting runs, the users' limits, and the service that users have received."""
        self._reset()
        self._scheduler.restore(self._received.read())
        user_limits.read(self._store, self._rules)
        self._apply_rules()
        self._after = queries.position(self._store)
        self._runs.read()
        for run in self._runs:
            self._put(run)
        self.measures.leads = True
        log.info("dispatching %d runs", len(self._runs))

    # ---- one step --------------------------------------------------------------------------

    def step(self) -> int:
        """Follow the log, decide, grant tasks; return the number of grants."""
        self._follow()
        devices = self._roster.devices()
        held = self._leases.held()
        self._see_gpus(devices, held)
        self._land(devices, held)
        changed, self._changed = sorted(self._changed), set()
        for run in changed:
            if run in self._desk:
                self._decide(run)
        look = time.monotonic() - self._looked > LOOK  # leases and pauses end by themselves
        for run in [*self._desk.tasks] if look else changed:
            self._put(run, held)
        self._looked = time.monotonic() if look else self._looked
        granted = self._grant([d for d in devices if d.free], held)
        if time.monotonic() - self._noted > 5.0:
            self._note_received()
        self.measures.look(self._runs.values())
        return granted

    def _follow(self) -> None:
        """Apply all events recorded since the last step."""
        while rows := self._store.read_all(self._after, limit=1000):
            for row in rows:
                try:
                    self._notice(row)
                except StoreUnavailableError:
                    raise
                except (EventsError, ForgeError) as error:
                    self._set_aside(run_of(row.stream), error)
            self._after = rows[-1].position

    def _notice(self, row: Envelope) -> None:
        if row.stream == user_limits.STREAM:
            user_limits.read(self._store, self._rules)
            self._apply_rules()
            return
        if row.stream == repository.STREAM:
            self._runs.read_pasts()
        if not kinds.is_run(row.stream):
            return
        run = run_of(row.stream)
        if row.type in (events.Submitted.type, events.Forked.type):
            self._runs.add(run, row)
        elif row.type == events.Retried.type and run not in self._runs:
            self._runs.add_again(run, self._after)
        entry = self._runs.get(run)
        if entry is None:
            return
        if row.type in events.ENDED:
            self._forget(run)
            return
        if row.type == events.Imported.type:
            self._scheduler.drop(run)  # it has another owner, and waits
            self._runs.add_again(run, entry.order)
            entry = self._runs[run]
        self._runs.apply(run, row)
        self._aside.discard(run)
        self._changed.add(run)
        if run not in self._desk:
            entry.pending = 1
            self._put(run)

    def _wake(self, run: str | None) -> None:
        """Mark a run for a new decision, because a run that it waited for has ended."""
        if run is not None and (entry := self._runs.get(run)) is not None:
            self._changed.add(run)
            entry.pending = 1
            self._put(run)

    def _forget(self, run: str) -> None:
        """Remove a run that has ended, and wake the run that it is a task of."""
        parent = self._desk.parents.get(run)
        for flight in self._flights.values():
            if flight.run == run and flight.counts:
                flight.counts = False
                self._scheduler.finish(run, flight.owner, time.monotonic() - flight.began)
        del self._runs[run]
        self._aside.discard(run)
        self._desk.forget(run)
        self._scheduler.drop(run)
        self._leases.forget(run)
        project(self._store)
        self._wake(parent)

    def _apply_rules(self) -> None:
        self._scheduler.limit(self._rules.everybody, self._rules.tasks)
        for owner, weight in sorted(self._rules.weights.items()):
            self._scheduler.weigh(owner, weight)

    def _see_gpus(self, devices: list[Device], held: dict[str, str]) -> None:
        """Update the needs of runs that may take a GPU or a CPU, when GPUs come or go."""
        offers = gpu_offers(devices)
        if offers != self._gpus:
            self._gpus = offers
            for run, entry in self._runs.items():
                if entry.device == AUTO:
                    self._put(run, held)

    # ---- tasks that devices have -------------------------------------------------------------

    def _land(self, devices: list[Device], held: dict[str, str]) -> None:
        """End the flights of tasks that were finished, given back, lost or never claimed."""
        for device in devices:
            if device.living and device.grant and device.name not in self._flights:
                run, task = device.grant  # granted by an earlier dispatcher
                if run in self._runs:
                    self._take_off(device.name, run, task)
        here = {device.name: device for device in devices}
        for name, flight in [*self._flights.items()]:
            device = here.get(name)
            if device is None or not device.living or device.grant != (flight.run, flight.task):
                # A device that stopped in order has removed its row: its task is not lost.
                self._landed(name, flight, lost=device is not None and not device.living)
            elif device.status != "busy" and flight.unclaimed(held, UNCLAIMED):
                named = queries.name(self._store, flight.run)
                log.warning("device %s does not claim %s/%s", name, named, flight.task)
                self._roster.revoke(name, flight.run, flight.task)
                self._landed(name, flight, lost=False)
        gone = [device.name for device in devices if not device.living]
        if gone:
            self._roster.sweep(gone)

    def _take_off(self, device: str, run: str, task: str) -> None:
        now = time.monotonic()
        self._flights[device] = Flight(run, task, self._runs[run].owner, now)
        self._runs[run].since = now
        self._scheduler.start(run)
        if run not in self._desk:  # the run's other tasks are not known yet
            self._runs[run].pending = 1
            self._put(run)

    def _landed(self, name: str, flight: Flight, lost: bool) -> None:
        del self._flights[name]
        now = time.monotonic()
        if flight.counts:
            self._scheduler.finish(flight.run, flight.owner, now - flight.began)
        entry = self._runs.get(flight.run)
        if entry is None:
            return
        self._changed.add(flight.run)
        if flight.run not in self._desk:
            entry.pending = 1
            self._put(flight.run)
        self._desk.came_back(flight.run, flight.task)
        if lost:
            self._decide(flight.run)
            if flight.task in {task.key for task in self._desk.tasks.get(flight.run, [])}:
                self.measures.expired += 1
                named = queries.name(self._store, flight.run)
                log.warning("task %s/%s was lost with device %s", named, flight.task, name)

    # ---- the tasks of runs -------------------------------------------------------------------

    def _set_aside(self, run: str, error: Exception) -> None:
        """Exclude a run whose history cannot be read here, so that no other run waits for it."""
        why = str(error) or type(error).__name__
        log.error("run %s is set aside until something is recorded for it: %s", run, why)
        self._desk.drop(run)
        self._aside.add(run)
        self._put(run)

    def _decide(self, run: str) -> None:
        """Update a run's tasks and append its facts; set the run aside on an error."""
        try:
            ended = self._desk.bring(run).ended
        except StoreUnavailableError:
            raise
        except Exception as error:  # an error of one run must not make other runs wait
            log.debug("run %s", run, exc_info=error)
            self._set_aside(run, error)
            return
        if ended and run in self._runs:
            self._forget(run)
        for dropped in self._desk.unload({flight.run for flight in self._flights.values()}):
            if dropped in self._runs:
                self._runs[dropped].pending = 1
                self._put(dropped)

    def _free_tasks(self, run: str, held: dict[str, str]) -> list[Task]:
        """Return the ready tasks of a run that no device was granted and no lease holds."""
        taken = {(f.run, f.task) for f in self._flights.values()}
        ready = self._desk.ready(run)
        return [t for t in ready if (run, t.key) not in taken and f"{run}/{t.key}" not in held]

    def _put(self, run: str, held: dict[str, str] | None = None) -> None:
        """Update a run in the scheduler: needs, priority, and number of pending tasks."""
        entry = self._runs.get(run)
        if entry is None:
            return
        if held is not None and run in self._desk.tasks:
            entry.pending = len(self._free_tasks(run, held))
        pending = 0 if entry.paused or run in self._aside else entry.pending
        wants = self._needs(run)
        self._scheduler.put(QueuedRun(run, entry.owner, entry.order, entry.priority, wants, pending))

    def _needs(self, run: str) -> DeviceNeeds:
        entry = self._runs[run]
        return needs(entry.device, entry.labels, self._desk.state(run), self._gpus)

    def _grant(self, devices: list[Device], held: dict[str, str]) -> int:
        """Grant each free device its next task; return the number of grants."""
        chosen: dict[str, tuple[str, str]] = {}
        for device in devices:
            picked = self._pick(device, held)
            if picked is not None:
                run, task = chosen[device.name] = picked
                self._take_off(device.name, run, task)
        if not chosen:
            return 0
        taken = self._roster.grant(chosen)
        for name, (run, task) in chosen.items():
            if name in taken:
                self._ring(name, run, task)
            else:  # the device went away, or another dispatcher was first
                flight = self._flights.pop(name)
                self._scheduler.finish(run, flight.owner, 0.0)
        return len(taken)

    def _pick(self, device: Device, held: dict[str, str]) -> tuple[str, str] | None:
        """Return (next run for this device, its best task here); None if no task fits."""
        tried_runs: set[str] = set()
        while True:
            self.measures.decisions += 1
            run = self._scheduler.pick(device.offer, lambda r: r in tried_runs or device.refuses(r))
            if run is None:
                return None
            tried_runs.add(run)
            if run not in self._desk:
                self._decide(run)
            if run not in self._runs:
                continue
            self._put(run, held)  # now the run's needs and tasks are known
            fits = device.offer.meets(self._needs(run))
            tasks = self._free_tasks(run, held) if fits else []
            if tasks:
                kind = kinds.of(self._desk.state(run).kind)
                return run, self._desk.homes.best(kind, run, tasks, device.name).key

    # ---- notes -------------------------------------------------------------------------------

    def _note_received(self) -> None:
        """Write the users' tags to the table, for the next dispatcher."""
        self._noted = time.monotonic()
        tags = self._scheduler.active_received()
        if tags != self._told:
            self._received.write(tags)
            self._told = tags


#: Number of runs whose folded states are kept.
LOADED = 256
#: Seconds until a task that came back undone is granted again: the first time, and at most.
BACKOFF, BACKOFF_MOST = 0.1, 60.0


class DispatcherCache:
    """A cache of the states and tasks of the runs that were used last."""

    def __init__(self, store: EventStore, context: Cause) -> None:
        self._store = store
        self._context = context
        self._runs = RunCache(store, LOADED)
        self.tasks: dict[str, Sequence[Task]] = {}
        self.homes = Homes()
        #: Run that is a task of another → that other run.
        self.parents: dict[str, str] = {}
        #: Run → task → how often the task came back, and when it may be granted again.
        self._backoff: dict[str, dict[str, Backoff]] = {}

    def __contains__(self, run: str) -> bool:
        """Return True if the run's state is in the cache."""
        return run in self._runs

    def state(self, run: str) -> Any:
        """Return the run's state as of its last update; None if it is not in the cache."""
        return self._runs.known(run)

    def bring(self, run: str) -> State:
        """Fold a run's new events, append the facts that follow, and store its tasks; return the state.

        Raises the errors of reading, folding and deciding.
        """
        while True:
            state, rows = self._runs.refresh(run)
            self.homes.follow(run, rows)
            project_after(self._store, rows)
            decision = decide(state)
            if decision.facts and not state.ended:
                append_facts(self._store, state, decision.facts, self._context)
            elif not any(self._settled(state, task) for task in decision.tasks):
                break
        self.tasks[run] = [task for task in decision.tasks if not self._has_child(run, task)]
        due = {task.key for task in decision.tasks}
        waits = self._backoff.get(run, {})
        self._backoff[run] = {task: wait for task, wait in waits.items() if task in due}
        return state

    def _settled(self, state: State, task: Task) -> bool:
        """Record, retry or resume a task that is a run; return True if that was done."""
        if not isinstance(task, Delegate) or not delegation.exists(self._store, task):
            return False
        return delegation.settle(self._store, state, task, self._context)

    def _has_child(self, run: str, task: Task) -> bool:
        """Return True if a task is a run that is already submitted, which needs no device."""
        if not isinstance(task, Delegate) or not delegation.exists(self._store, task):
            return False
        self.parents[task.run] = run
        return True

    def drop(self, run: str) -> None:
        """Remove the state and tasks of a run, but keep its backoffs and homes."""
        self._runs.forget(run)
        self.tasks.pop(run, None)

    def forget(self, run: str) -> None:
        """Remove everything of a run that has ended."""
        self.drop(run)
        self.parents.pop(run, None)
        self.homes.forget(run)
        self._backoff.pop(run, None)

    def unload(self, busy: Collection[str]) -> list[str]:
        """Drop the longest unused runs beyond `LOADED`, those in `busy` last; return their names."""
        dropped = self._runs.shrink(busy)
        for run in dropped:
            self.drop(run)
        return dropped

    def came_back(self, run: str, task: str) -> None:
        """Set a task's backoff after a device gave it back: if still due it waits, longer each time."""
        backoff = self._backoff.setdefault(run, {}).setdefault(task, Backoff())
        backoff.count += 1
        wait = min(BACKOFF * 4 ** min(backoff.count - 1, 10), BACKOFF_MOST)
        backoff.until = time.monotonic() + wait

    def ready(self, run: str) -> list[Task]:
        """Return the tasks of a run that wait for no backoff."""
        now, waits = time.monotonic(), self._backoff.get(run, {})
        tasks = self.tasks.get(run, [])
        return [t for t in tasks if t.key not in waits or waits[t.key].until <= now]


class Homes:
    """The device that built each candidate, by run; a cache whose loss only costs time."""

    def __init__(self) -> None:
        #: Run → recipe id → device.
        self._homes: dict[str, dict[str, str]] = {}

    def follow(self, run: str, rows: Iterable[Envelope]) -> None:
        """Store which device built which candidate: the event's actor is the worker."""
        for row in rows:
            kind = kinds.kind_of(row.stream)
            built = kind.storage.built(row) if kind else None
            if built is not None:
                actor = row.actor.removeprefix("worker/")
                self._homes.setdefault(run, {})[built] = actor

    def forget(self, run: str) -> None:
        """Remove an ended run's entry: which device built each of its candidates."""
        self._homes.pop(run, None)

    def best(self, kind: Kind, run: str, tasks: Sequence[Task], device: str) -> Task:
        """Return the task that fits a device best; `tasks` must not be empty.

        First come evaluations of candidates that this device built, then tasks without a known device,
        then evaluations of candidates that another device built: that device is busy, or it would have
        taken them.
        """
        homes = self._homes.get(run)
        if not homes:
            return tasks[0]

        def distance(task: Task) -> int:
            read = kind.storage.needs(whole(task))
            home = None if read is None else homes.get(read)
            return 1 if home is None else 0 if home == device else 2

        return min(tasks, key=distance)
