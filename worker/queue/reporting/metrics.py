"""Prometheus metrics of one worker, and of the dispatcher if this worker has it."""

from __future__ import annotations

import threading

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from agent_forge.events.envelope import Plain
from agent_forge.runs.errors import UnavailableError
from agent_forge.worker.queue.dispatcher import Measures

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
