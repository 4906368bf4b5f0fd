"""Celery and Redis: doorbells. A message says "look, there may be something for you", and nothing else.

The grant that it is about stands in the database. A message that is lost, doubled, late or in another
order changes nothing but how soon somebody looks: devices look by themselves every second. So Celery's
own redelivery is not needed and not used; there is no result backend, and messages are JSON.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable

from celery import Celery
from celery.worker import WorkController, state
from kombu.entity import Queue

from evomerge.errors import ConfigError

log = logging.getLogger(__name__)

DEFAULT_BROKER = "redis://127.0.0.1:6379/0"
#: Seconds after which a message means nothing any more.
STALE = 60
#: Seconds without ringing after the broker could not be reached.
REST = 1.0


def broker_url() -> str:
    """FORGE_BROKER_URL, by default a Redis on this machine. Raises ConfigError."""
    url = os.environ.get("FORGE_BROKER_URL") or DEFAULT_BROKER
    if not url.startswith(("redis://", "rediss://", "redis+socket://")):
        raise ConfigError(
            "FORGE_BROKER_URL is no address of a Redis: give redis://:PASSWORD@HOST:6379/0 (rediss:// "
            "with TLS)."
        )
    return url


def make_app(url: str) -> Celery:
    """The Celery application: JSON, no results, early acknowledgement."""
    app = Celery("forge", broker=url, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_acks_late=False,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={"socket_connect_timeout": 2, "socket_timeout": 5},
    )
    return app


def queue_of(device: str) -> str:
    """The queue of a device's messages."""
    return f"forge.{device}"


class Bells:
    """Rings devices from a thread of its own: a broker that hangs holds nobody up."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._wanted: queue.SimpleQueue[tuple[str, str, str] | None] = queue.SimpleQueue()
        self._rest_until = 0.0
        self._thread = threading.Thread(target=self._work, name="bells", daemon=True)
        self._thread.start()

    def ring(self, device: str, run: str, task: str) -> None:
        """Let a device look soon."""
        self._wanted.put((device, run, task))

    def close(self) -> None:
        """Ring no more."""
        self._wanted.put(None)

    def _work(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            if time.monotonic() < self._rest_until:
                continue
            device, run, task = wanted
            try:
                self._app.send_task(
                    "forge.hint", [device, run, task], queue=queue_of(device), expires=STALE,
                    retry=False,
                )  # fmt: skip
            except Exception as error:  # whatever a broker's client raises: nothing depends on it
                log.warning("the broker cannot be reached: %s. Devices look by themselves.", error)
                self._rest_until = time.monotonic() + REST


class Listener:
    """A Celery worker in a thread that wakes this process's devices."""

    def __init__(self, app: Celery, devices: dict[str, Callable[[], None]]) -> None:
        def hint(device: str, _run: str, _task: str) -> None:
            if device in devices:
                devices[device]()

        app.task(name="forge.hint", ignore_result=True)(hint)
        app.conf.task_queues = [Queue(queue_of(device)) for device in devices]
        state.should_stop = None
        self._controller = WorkController(
            app=app, pool="solo", concurrency=1, queues=[queue_of(d) for d in devices],
            without_heartbeat=True, without_mingle=True, without_gossip=True,
        )  # fmt: skip
        for noisy in ("celery", "kombu", "amqp"):
            logging.getLogger(noisy).setLevel(logging.ERROR)
        self._thread = threading.Thread(target=self._controller.start, name="celery", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; not waited for where the broker hangs."""
        state.should_stop = 0
        self._thread.join(timeout=3)
