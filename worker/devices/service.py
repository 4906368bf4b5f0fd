"""`forge worker`: this machine's devices, doorbell, heartbeat, and perhaps the dispatcher."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from agent_forge.events.envelope import Plain
from agent_forge.runs.errors import UnavailableError
from agent_forge.runs.home import Home
from agent_forge.runs.system.durations import duration
from agent_forge.worker.devices.device import Slot
from agent_forge.worker.queue.celery_wakeup import Bells, Listener, make_app
from agent_forge.worker.queue.device_table import Placement
from agent_forge.worker.queue.dispatcher import Dispatcher, Measures
from agent_forge.worker.queue.leases import here, lifetime

#: Histogram buckets in seconds: of appends, and of tasks.
_APPENDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3)
_TASKS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)


class Metrics:
    """The worker's Prometheus metrics, in their own registry without those of other libraries."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._expired = self._decided = 0
        self._tasks = Counter(
            "forge_tasks", "Tasks that ended here", ["kind", "ended"], registry=registry
        )
        self._seconds = Histogram(
            "forge_task_seconds", "How long tasks took", ["kind"], buckets=_TASKS, registry=registry
        )
        self._appends = Histogram(
            "forge_append_seconds",
            "From a result to its event in the log",
            buckets=_APPENDS,
            registry=registry,
        )
        self._tokens = Counter("forge_tokens", "Predicted tokens that were scored", registry=registry)
        self._speed = Gauge(
            "forge_tokens_per_second", "Of the last evaluation, all its work counted", registry=registry
        )
        self._cache = Counter(
            "forge_cache_lookups", "Weights looked for in the cache", ["result"], registry=registry
        )
        self._waiting = Gauge("forge_queue_tasks", "Tasks that no device has", registry=registry)
        self._oldest = Gauge(
            "forge_queue_oldest_seconds", "Since when the longest waiting run waits", registry=registry
        )
        self._leads = Gauge("forge_dispatcher", "1 where this worker dispatches", registry=registry)
        self._lost = Counter(
            "forge_lease_expiries", "Tasks that were lost with their device", registry=registry
        )
        self._decisions = Counter(
            "forge_schedule_decisions", "Questions to the scheduler", registry=registry
        )
        self._devices = Gauge("forge_devices", "Devices of this worker", ["status"], registry=registry)

    def ended(self, task: str, outcome: Plain) -> None:
        """Count a task that ended on one of this worker's devices."""
        kind = task.partition("/")[0]
        with self._lock:
            self._tasks.labels(kind, outcome["ended"]).inc()
            self._seconds.labels(kind).observe(outcome["seconds"])
            self._cache.labels("hit").inc(outcome.get("hits", 0))
            self._cache.labels("miss").inc(outcome.get("misses", 0))
            if "append" in outcome:
                self._appends.observe(outcome["append"])
            if outcome.get("tokens"):
                self._tokens.inc(outcome["tokens"])
                self._speed.set(outcome["tokens"] / outcome["seconds"])

    def dispatched(self, measures: Measures, busy: int, idle: int) -> None:
        """Set the gauges and counters of dispatcher and devices; called from time to time."""
        self._leads.set(measures.leads)
        self._waiting.set(measures.waiting if measures.leads else 0)
        self._oldest.set(measures.oldest if measures.leads else 0)
        self._lost.inc(measures.expired - self._expired)
        self._decisions.inc(measures.decisions - self._decided)
        self._expired, self._decided = measures.expired, measures.decisions
        self._devices.labels("busy").set(busy)
        self._devices.labels("idle").set(idle)

    def serve(self, port: int, address: str) -> int:
        """Serve the metrics at http://ADDRESS:PORT/metrics; return the port (0 picks a free one).

        Raises UnavailableError.
        """
        try:
            server, _ = start_http_server(port, addr=address, registry=self.registry)
        except OSError as error:
            raise UnavailableError(
                f"metrics cannot be served at {address}:{port}: {error.strerror}. Choose another port "
                "with --metrics-port."
            ) from error
        return server.server_port


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Shift:
    """Limits of a worker's time, and the signals that drain it: it gives its tasks back in time."""

    signals: frozenset[int] = frozenset()
    #: Seconds from a signal, or from the end of the shift, until unfinished tasks are given back.
    notice: float = 20.0
    #: Seconds without a task, and seconds in all, after which the shift is over.
    idle: float = math.inf
    seconds: float = math.inf


SHIFT = Shift()


class Crew:
    """The threads of one worker process: devices, heartbeat, listener, perhaps the dispatcher.

    Tasks are done in child processes, one for each device.
    """

    def __init__(
        self,
        home: Home,
        placements: list[Placement],
        broker: str,
        labels: frozenset[str] = frozenset(),
        only: bool = False,
        dispatch: bool = True,
    ) -> None:
        self.metrics = Metrics()
        app = make_app(broker)
        self._bells = Bells(app)
        self._beat = lifetime() / 6
        host = here().partition(":")[0]
        self.dispatcher = Dispatcher(home.open_store(), self._bells.ring, host) if dispatch else None
        self.slots = [Slot(home, p, labels, only, self._ended) for p in placements]
        self._listener = Listener(app, {slot.name: slot.ring for slot in self.slots})
        self._stopped = threading.Event()

    def _ended(self, run: str, task: str, outcome: Plain) -> None:
        self.metrics.ended(task, outcome)
        level = logging.INFO if outcome["ended"] in ("done", "known", "late") else logging.WARNING
        log.log(
            level,
            "task ended",
            extra={
                "run": run,
                "run_name": outcome.get("run_name"),
                "task": task,
                "what": outcome.get("what"),
                "candidate": outcome.get("candidate"),
                "position": outcome.get("position"),
                "ended": outcome["ended"],
                "seconds": round(outcome["seconds"], 4),
                "why": outcome["why"] or None,
            },
        )
        if self.dispatcher is not None:
            self.dispatcher.nudge()

    def start(self) -> None:
        """Start the threads of the devices, the dispatcher and the heartbeat."""
        for slot in self.slots:
            slot.start()
        if self.dispatcher is not None:
            self.dispatcher.start()
        threading.Thread(target=self._heart, name="heartbeat", daemon=True).start()

    def _heart(self) -> None:
        """Renew the leases and the rows in the device table until the crew is closed."""
        beaten = time.monotonic()
        while not self._stopped.wait(min(1.0, self._beat)):
            busy = sum(slot.task is not None for slot in self.slots)
            if self.dispatcher is not None:
                self.metrics.dispatched(self.dispatcher.measures, busy, len(self.slots) - busy)
            if time.monotonic() - beaten < self._beat:
                continue
            beaten = time.monotonic()
            for slot in self.slots:
                try:
                    slot.beat()
                except Exception as error:  # the next beat may succeed
                    log.warning("device %s could not say that it lives: %s", slot.name, error)

    def stop(self) -> None:
        """Make all devices end after their current tasks, or at the end of their next pieces."""
        for slot in self.slots:
            slot.stop()

    def kill(self) -> None:
        """Make all devices end at once; their current tasks are given back."""
        for slot in self.slots:
            slot.kill()

    def wait(self, tell: Callable[[str], None] = lambda words: None, shift: Shift = SHIFT) -> int:
        """Wait until all devices have ended, then close; return the signal that drained, or 0.

        The first signal, and the end of the shift, stop the devices: each records the part of its task
        that is under way, or finishes the task. A further signal kills them, and so does the end of the
        notice. `tell` is called with a sentence on the tasks that are being finished.
        """
        signals: list[int] = []
        numbers = {signal.SIGINT, signal.SIGTERM, *shift.signals}
        before = {s: signal.signal(s, lambda number, _: signals.append(number)) for s in numbers}
        began, deadline = time.monotonic(), math.inf
        is_stopping, first_signals = False, 1
        try:
            while any(slot.is_alive() for slot in self.slots):
                time.sleep(0.1)
                now = time.monotonic()
                if len(signals) > first_signals or now > deadline:
                    self.kill()
                    continue
                idle = min(0.0 if slot.task else now - slot.busy_at for slot in self.slots)
                is_over = now - began >= shift.seconds or idle >= shift.idle
                if not is_stopping and (signals or is_over):
                    is_stopping, first_signals = True, len(signals[:1])
                    is_drain = not signals or signals[0] in shift.signals
                    deadline = now + shift.notice if is_drain else math.inf
                    self._stop(tell, f" within {duration(shift.notice)}" if is_drain else "")
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.close()
        return next((number for number in signals[:1] if number in shift.signals), 0)

    def _stop(self, tell: Callable[[str], None], when: str) -> None:
        """Stop the devices, and say what they finish."""
        if busy := [doing for slot in self.slots if (doing := slot.doing())]:
            tell(f"finishing {', '.join(busy)}{when}; again to give it back and stop now")
        self.stop()

    def close(self) -> None:
        """End all devices, the dispatcher, the heartbeat, the listener and the bells."""
        self.kill()
        for slot in self.slots:
            if slot.ident is not None:
                slot.join(timeout=10)
        if self.dispatcher is not None and self.dispatcher.ident is not None:
            self.dispatcher.stop()
            self.dispatcher.join(timeout=10)
        self._stopped.set()
        self._listener.close()
        self._bells.close()
