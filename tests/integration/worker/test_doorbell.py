"""Doorbells on a real Redis: whoever can write to it cannot silence them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_forge.worker.devices.local_servers import Redis
from agent_forge.worker.queue.celery_wakeup import Bells, Listener, make_app, queue_of
from testing.waiting import PATIENCE, wait_until

DEVICE = "host/cpu"
QUEUE = queue_of(DEVICE)


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    server = Redis(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


class Device:
    """A device that counts how often it was rung."""

    def __init__(self) -> None:
        self.rung = threading.Semaphore(0)

    def ring(self) -> None:
        self.rung.release()

    def heard(self, seconds: float = PATIENCE) -> bool:
        return self.rung.acquire(timeout=seconds)


@pytest.fixture
def device(redis: Redis) -> Iterator[Device]:
    found = Device()
    with redis.client() as client:
        client.flushall()
    with closing(Listener(make_app(redis.url), {DEVICE: found.ring})):
        yield found


def ring_until_heard(redis: Redis, device: Device) -> None:
    """A proper message is heard: those before may still be on their way."""
    while device.heard(0.3):
        pass
    with closing(Bells(make_app(redis.url))) as bells:
        bells.ring(DEVICE, "r", "build/0/1")
        assert device.heard()


def envelope(redis: Redis, **headers: Any) -> dict[str, Any]:
    """A message as Celery writes it, with other headers."""
    app = make_app(redis.url)
    app.send_task("forge.hint", [DEVICE, "r", "t"], queue="model")
    with redis.client() as client:
        _, raw = client.brpop(["model"], timeout=PATIENCE)
    app.close()
    message = json.loads(raw)
    message["headers"] |= headers
    return message


def malformed(redis: Redis, kind: str) -> bytes:
    """What somebody with the password may put into a queue."""
    if kind == "far eta":
        return json.dumps(envelope(redis, eta="9999-12-31T23:59:59+00:00")).encode()
    if kind == "chain":
        nobody = {"task": "forge.hint", "args": ["x", "y", "z"], "kwargs": {}, "options": {}}
        message = envelope(redis)
        message["body"] = json.dumps([[DEVICE, "r", "t"], {}, {"chain": [nobody] * 3}])
        message["properties"]["body_encoding"] = None
        return json.dumps(message).encode()
    if kind == "text body":
        message = envelope(redis) | {"body": "no list"}
        message["properties"]["body_encoding"] = None
        return json.dumps(message).encode()
    if kind == "expired":
        return json.dumps(envelope(redis, expires="2001-01-01T00:00:00+00:00")).encode()
    return {"garbage": b"\x80garbage", "list": b"[]", "object": b"{}", "empty": b""}[kind]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["garbage", "list", "object", "empty", "text body", "far eta", "chain", "expired"]
)
def test_no_message_silences_the_doorbell(redis: Redis, device: Device, kind: str) -> None:
    """One malformed message ended the thread for good: devices then looked every second only."""
    with redis.client() as client:
        for _ in range(3):
            client.lpush(QUEUE, malformed(redis, kind))
    assert device.heard(), "a message means: look"
    ring_until_heard(redis, device)


def test_a_queue_that_is_no_list_is_replaced(redis: Redis, device: Device) -> None:
    """Redis wakes no listener for such a value: it is seen when the listener asks again."""
    ring_until_heard(redis, device)
    with redis.client() as client:
        client.set(QUEUE, "a text")
        wait_until(lambda: not client.exists(QUEUE), "the text is removed")
    ring_until_heard(redis, device)


def test_many_messages_are_one_ring(redis: Redis) -> None:
    """A flood costs one look, and leaves nothing behind."""
    with redis.client() as client:
        client.flushall()
        client.lpush(QUEUE, *[b"x"] * 1000)
        found = Device()
        with closing(Listener(make_app(redis.url), {DEVICE: found.ring})):
            assert found.heard()
            assert not found.heard(0.3)
        assert client.llen(QUEUE) == 0


@pytest.mark.slow
def test_the_doorbell_rings_again_after_the_broker_died(tmp_path: Path) -> None:
    server, found = Redis(tmp_path), Device()
    try:
        with closing(Listener(make_app(server.url), {DEVICE: found.ring})):
            ring_until_heard(server, found)
            server.kill()
            time.sleep(0.5)
            server.start()
            ring_until_heard(server, found)
    finally:
        server.stop()
