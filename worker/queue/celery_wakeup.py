"""Wake-up messages to devices through Celery and Redis; a message only means "look for a grant".

The grant itself is in the database. A message that is lost, doubled, late or out of order only changes
how soon a device looks: devices also look by themselves every second. So Celery's redelivery is not
needed and not used; there is no result backend, and messages are JSON. The listener needs no Celery
worker: the arrival of a message is its only content.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from celery import Celery
from redis import exceptions as client_errors

from agent_forge.runs.errors import ConfigError

log = logging.getLogger(__name__)

DEFAULT_BROKER = "redis://127.0.0.1:6379/0"
#: Seconds after which a message expires.
STALE = 60
#: Seconds without sending or listening after the broker could not be reached.
REST = 1.0
#: Seconds between two checks whether the listener was closed.
LOOK = 1


def broker_url() -> str:
    """Return the URL in FORGE_BROKER_URL, by default of a Redis here. Raises ConfigError."""
    url = os.environ.get("FORGE_BROKER_URL") or DEFAULT_BROKER
    if not url.startswith(("redis://", "rediss://", "redis+socket://")):
        raise ConfigError(
            "FORGE_BROKER_URL is no address of a Redis: give redis://:PASSWORD@HOST:6379/0 (rediss:// "
            "with TLS)."
        )
    return url


def make_app(url: str) -> Celery:
    """Return the Celery application: JSON, no results, early acknowledgement."""
    app = Celery("forge", broker=url, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_acks_late=False,
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={"socket_connect_timeout": 2, "socket_timeout": 5},
    )
    return app


def queue_of(device: str) -> str:
    """Return the name of the queue for a device's messages."""
    return f"forge.{device}"


class Bells:
    """The sender of wake-up messages: a thread of its own, so that a hung broker delays no caller."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._wanted: queue.SimpleQueue[tuple[str, str, str] | None] = queue.SimpleQueue()
        self._rest_until = 0.0
        self._thread = threading.Thread(target=self._work, name="bells", daemon=True)
        self._thread.start()

    def ring(self, device: str, run: str, task: str) -> None:
        """Queue a message that makes a device look for this grant."""
        self._wanted.put((device, run, task))

    def close(self) -> None:
        """End the thread once the queued messages are sent."""
        self._wanted.put(None)

    def _work(self) -> None:
        while (request := self._wanted.get()) is not None:
            if time.monotonic() < self._rest_until:
                continue
            device, run, task = request
            try:
                self._app.send_task(
                    "forge.hint",
                    [device, run, task],
                    queue=queue_of(device),
                    expires=STALE,
                    retry=False,
                )
            except Exception as error:  # any error of a broker's client: no grant depends on it
                log.warning("the broker cannot be reached: %s. Devices look by themselves.", error)
                self._rest_until = time.monotonic() + REST


class Listener:
    """A thread that wakes this process's devices when a message comes for them.

    A message only means "look": the listener removes it from its queue without parsing it. So no
    foreign message, countdown or expiry can stop or delay the next one.
    """

    def __init__(self, app: Celery, devices: dict[str, Callable[[], None]]) -> None:
        self._app = app
        self._rings = {queue_of(device): ring for device, ring in devices.items()}
        self._closed = threading.Event()
        for noisy in ("celery", "kombu", "amqp"):
            logging.getLogger(noisy).setLevel(logging.ERROR)
        self._thread = threading.Thread(target=self._listen, name="doorbell", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; wait at most 3 seconds for the thread, as the broker may hang."""
        self._closed.set()
        self._thread.join(timeout=3)

    def _listen(self) -> None:
        """Listen until the listener is closed; connect again after any error."""
        while not self._closed.is_set():
            try:
                with self._app.connection_for_read() as connection:
                    self._serve(connection.channel())
            except Exception as error:  # any error of a broker's client: the devices look by themselves
                log.debug("the broker cannot be listened to: %s", error)
                self._closed.wait(REST)

    def _serve(self, channel: Any) -> None:
        """Wake a device for each message; all messages that wait for a device count as one."""
        with channel.conn_or_acquire() as client:
            while not self._closed.is_set():
                try:
                    message = client.brpop(list(self._rings), timeout=LOOK)
                except client_errors.ResponseError:  # a queue's key holds another kind of value
                    client.delete(*self._rings)
                    continue
                if message is not None:
                    queue = message[0].decode()
                    client.delete(queue)
                    self._rings[queue]()
