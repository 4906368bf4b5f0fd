"""`forge worker`: this machine's devices, doorbell, heartbeat, and perhaps the dispatcher."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable

from agent_forge.events.envelope import Plain
from agent_forge.runs.home import Home
from agent_forge.worker.devices.device import Slot
from agent_forge.worker.queue.celery_wakeup import Bells, Listener, make_app
from agent_forge.worker.queue.device_table import Placement
from agent_forge.worker.queue.dispatcher import Dispatcher
from agent_forge.worker.queue.leases import here, lifetime
from agent_forge.worker.queue.reporting.metrics import Metrics

log = logging.getLogger(__name__)


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
        """Make all devices end after their current tasks."""
        for slot in self.slots:
            slot.stop()

    def kill(self) -> None:
        """Make all devices end at once; their current tasks are given back."""
        for slot in self.slots:
            slot.kill()

    def wait(self, tell: Callable[[str], None] = lambda words: None) -> None:
        """Wait until all devices have ended, then close.

        The first SIGINT or SIGTERM stops the devices after their tasks; a second one kills them. `tell`
        is called with a sentence on the tasks that are being finished.
        """
        signals: list[int] = []

        def on_signal(number: int, _frame: object) -> None:
            signals.append(number)

        before = {s: signal.signal(s, on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
        signal_count = 0
        try:
            while any(slot.is_alive() for slot in self.slots):
                time.sleep(0.1)
                if len(signals) == signal_count:
                    continue
                signal_count = len(signals)
                if signal_count == 1:
                    busy = [doing for slot in self.slots if (doing := slot.doing())]
                    if busy:
                        tell(f"finishing {', '.join(busy)}; again to give it back and stop now")
                    self.stop()
                else:
                    self.kill()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.close()

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
