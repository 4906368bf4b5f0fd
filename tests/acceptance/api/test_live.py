"""Live events: nothing lost, nothing twice, whatever is cut; slow clients; many clients."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from agent_forge.events import Cause, New
from agent_forge.evomerge.run import events as run_events
from agent_forge.runs.home import Home
from agent_forge.runs.streams import stream
from agent_forge.worker.commands import accounts
from testing.waiting import PATIENCE, wait_until
from testing.worlds import fake_runs

ROOT = Path(__file__).resolve().parents[3]


class Server:
    """`forge serve` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder)
        self.store = self.home.open_store()
        fake_runs.submit(self.store, "r")
        accounts.add(self.store, "ada", "admin")
        self.token = accounts.issue(self.store, "ada")[1]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-c", "from agent_forge.cli.main import main; main()", "serve"]
        env = {
            **os.environ,
            "FORGE_HOME": str(folder),
            "FORGE_API_RATE": "100000",
            "FORGE_API_WATCHERS": "2000",
        }
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port), "--models", str(folder)],
            env=env,
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )
        self.wait()

    def wait(self) -> None:
        with httpx2.Client(verify=False, timeout=PATIENCE) as http:  # certificates take long

            def healthy() -> bool:
                assert self.process.poll() is None
                with suppress(httpx2.HTTPError):
                    return http.get(f"http://127.0.0.1:{self.port}/health").status_code == 200
                return False

            wait_until(healthy, "the server comes up", pause=0.1)

    def say(self, count: int, run: str = "r", pause: float = 0.0) -> None:
        """Append events that may stand anywhere."""
        for _ in range(count):
            version = self.store.version(stream("evomerge", run))
            event = run_events.PriorityChanged(priority=version % 7)
            new = New(event, f"{run}/said/{version}")
            self.store.append(stream("evomerge", run), version, [new], Cause(actor="ada"))
            time.sleep(pause)

    @property
    def last(self) -> int:
        return self.store.end()

    def watch(self):
        """A connection that says who it is."""
        head = {"Authorization": f"Bearer {self.token}"}
        place = f"ws://127.0.0.1:{self.port}/ws"
        return connect(place, additional_headers=head, open_timeout=PATIENCE)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.process.send_signal(signal.SIGTERM)
    try:
        server.process.wait(PATIENCE)
    finally:
        server.process.kill()
        server.store.close()


async def following(server: Server, after: int, until: int, cut: Any) -> list[int]:
    """The positions that a client sees which is cut off by chance and comes back."""
    seen: list[int] = []
    while not seen or seen[-1] < until:
        with suppress(ConnectionClosed, OSError):
            async with server.watch() as socket_:
                assert json.loads(await socket_.recv())["type"] == "welcome"
                wanted = {"type": "subscribe", "after": seen[-1] if seen else after}
                await socket_.send(json.dumps(wanted))
                left = cut()
                while left and (not seen or seen[-1] < until):
                    message = json.loads(await asyncio.wait_for(socket_.recv(), PATIENCE))
                    if message["type"] == "event":
                        seen.append(message["position"])
                        left -= 1
                socket_.transport.abort()  # no goodbye
    return seen


@pytest.mark.smoke
@pytest.mark.slow
def test_clients_that_are_cut_off_at_random_lose_and_double_nothing(server: Server) -> None:
    start, chance = server.last, random.Random(5)
    speaker = threading.Thread(target=server.say, args=(400,))
    speaker.start()

    async def all_of_them() -> list[list[int]]:
        cuts = [lambda: chance.randrange(1, 40) for _ in range(6)]
        return await asyncio.gather(*(following(server, start, start + 400, c) for c in cuts))

    found = asyncio.run(asyncio.wait_for(all_of_them(), PATIENCE))
    speaker.join()
    assert found == [list(range(start + 1, start + 401))] * 6


@pytest.mark.slow
def test_a_client_of_one_run_sees_that_run_from_its_beginning(server: Server) -> None:
    fake_runs.whole(server.store, "other", generations=3)
    rows = server.store.read(stream("evomerge", "other"))

    async def watch() -> list[dict[str, Any]]:
        async with server.watch() as socket_:
            await socket_.recv()
            await socket_.send(json.dumps({"type": "subscribe", "run": "other", "after": 0}))
            assert json.loads(await socket_.recv()) == {
                "type": "subscribed",
                "run": "other",
                "after": 0,
            }
            found = []
            while not found or found[-1].get("event", {}).get("type") != "completed":
                found.append(json.loads(await asyncio.wait_for(socket_.recv(), PATIENCE)))
            return found

    found = asyncio.run(watch())
    events = [m for m in found if m["type"] == "event"]
    assert [(m["position"], m["event"]["hash"]) for m in events] == [(r.position, r.hash) for r in rows]
    assert [m["place"] for m in events] == list(range(1, len(rows) + 1))
    progress = [m for m in found if m["type"] == "progress"]
    generations = [m["generation"] for m in progress]
    assert generations == list(range(sum(r.type == "generation_completed" for r in rows)))
    assert [(m["type"], m.get("status")) for m in found[-2:]] == [
        ("complete", "completed"),
        ("event", None),
    ]


@pytest.mark.slow
def test_a_client_that_reads_nothing_holds_up_nobody(server: Server) -> None:
    """Its connection fills; others go on seeing events at once."""
    start = server.last

    async def both() -> None:
        async with server.watch() as slow, server.watch() as quick:
            for one in (slow, quick):
                await one.recv()
                await one.send(json.dumps({"type": "subscribe", "after": start}))
            slow.transport.pause_reading()
            await asyncio.to_thread(server.say, 300)
            seen = 0
            while seen < start + 300:
                message = json.loads(await asyncio.wait_for(quick.recv(), PATIENCE))
                seen = message.get("position", 0)
            await asyncio.to_thread(server.say, 1)
            while json.loads(await asyncio.wait_for(quick.recv(), PATIENCE))["type"] != "event":
                pass
            slow.transport.abort()

    asyncio.run(both())


@pytest.mark.slow
def test_a_thousand_watchers_all_see_everything(server: Server) -> None:
    start, count = server.last, 1000

    async def one() -> list[int]:
        async with server.watch() as socket_:
            await socket_.recv()
            await socket_.send(json.dumps({"type": "subscribe", "after": start}))
            seen: list[int] = []
            while len(seen) < 5:
                message = json.loads(await asyncio.wait_for(socket_.recv(), PATIENCE))
                if message["type"] == "event":
                    seen.append(message["position"])
            return seen

    async def everybody() -> list[list[int]]:
        gate = asyncio.Semaphore(50)

        async def later() -> list[int]:
            async with gate:
                task = asyncio.ensure_future(one())
                await asyncio.sleep(0.05)
            return await task

        watchers = [asyncio.ensure_future(later()) for _ in range(count)]
        await asyncio.sleep(4)
        await asyncio.to_thread(server.say, 5)
        return await asyncio.gather(*watchers)

    found = asyncio.run(asyncio.wait_for(everybody(), PATIENCE))
    assert found == [list(range(start + 1, start + 6))] * count


@pytest.mark.slow
def test_server_sent_events_are_the_same_and_go_on_by_their_ids(server: Server) -> None:
    start = server.last
    server.say(6)
    head = {"Authorization": f"Bearer {server.token}"}
    url = f"http://127.0.0.1:{server.port}/live"

    def read(count: int, **more: Any) -> list[int]:
        found: list[int] = []
        with httpx2.stream("GET", url, timeout=PATIENCE, verify=False, **more) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    found.append(int(line[4:]))
                    if len(found) == count:
                        break
        return found

    first = read(3, headers=head, params={"after": start})
    rest = read(3, headers={**head, "Last-Event-ID": str(first[-1])}, params={"after": start})
    assert first + rest == list(range(start + 1, start + 7))


@pytest.mark.slow
def test_a_stranger_is_told_so_and_let_go(server: Server) -> None:
    async def knock(first: str) -> tuple[dict[str, Any], int | None]:
        async with connect(f"ws://127.0.0.1:{server.port}/ws") as socket_:
            await socket_.send(first)
            said = json.loads(await socket_.recv())
            with suppress(ConnectionClosed):
                await socket_.recv()
            return said, socket_.close_code

    for first in ('{"type": "authenticate", "token": "x"}', '{"type": "subscribe"}', "nonsense"):
        said, code = asyncio.run(knock(first))
        assert (said["type"], said["status"], code) == ("error", 401, 1008)
    right = json.dumps({"type": "authenticate", "token": server.token})

    async def enter() -> str:
        async with connect(f"ws://127.0.0.1:{server.port}/ws") as socket_:
            await socket_.send(right)
            return json.loads(await socket_.recv())["user"]

    assert asyncio.run(enter()) == "ada"


@pytest.mark.slow
def test_a_client_is_let_go_once_its_token_is_void(server: Server) -> None:
    """Within seconds, also where it asks for nothing; what it asks before is refused."""
    accounts.add(server.store, "bob", "submitter")
    id_, token = accounts.issue(server.store, "bob")

    async def watch() -> tuple[list[dict[str, Any]], int | None]:
        place, said = f"ws://127.0.0.1:{server.port}/ws", []
        async with connect(place, additional_headers={"Authorization": f"Bearer {token}"}) as bob:
            await bob.recv()
            await asyncio.to_thread(accounts.revoke, server.store, "bob", id_)
            with suppress(ConnectionClosed):  # perhaps before it has asked
                await bob.send('{"type": "ping"}')
                said.append(json.loads(await bob.recv()))
                await asyncio.wait_for(bob.recv(), PATIENCE)
            return said, bob.close_code

    said, code = asyncio.run(watch())
    assert code == 1008
    assert [(one["type"], one["status"]) for one in said] in ([("error", 401)], [])


@pytest.mark.slow
def test_bytes_are_answered_and_large_messages_are_not_read(server: Server) -> None:
    async def talk() -> int | None:
        async with server.watch() as socket_:
            await socket_.recv()
            await socket_.send(b"\x00\x01")
            assert json.loads(await socket_.recv())["status"] == 422
            await socket_.send("[" * 5000)
            assert json.loads(await socket_.recv())["type"] == "error"
            with suppress(ConnectionClosed):
                await socket_.send("x" * (2 << 20))
                await socket_.recv()
            return socket_.close_code

    assert asyncio.run(talk()) == 1009


@pytest.mark.slow
def test_an_event_that_cannot_be_told_holds_up_no_other(server: Server) -> None:
    """A fork whose past was changed, say: its own page says so, the others go on."""
    start = server.last
    broken = New(run_events.PriorityChanged(priority=1), "broken/x")
    server.store.append(stream("evomerge", "broken"), 0, [broken])
    fake_runs.whole(server.store, "fine", generations=0)
    last = server.last

    async def watch() -> list[int]:
        async with server.watch() as socket_:
            await socket_.recv()
            await socket_.send(json.dumps({"type": "subscribe", "after": start}))
            seen = [start]
            while seen[-1] < last:
                message = json.loads(await asyncio.wait_for(socket_.recv(), PATIENCE))
                seen += [message["position"]] if message["type"] == "event" else []
            return seen[1:]

    found = asyncio.run(watch())
    assert found[-1] == last
    assert found == sorted(set(found))


def test_pages_of_other_sites_may_not_watch(server: Server) -> None:
    async def knock() -> None:
        async with connect(f"ws://127.0.0.1:{server.port}/ws", origin="http://evil.example"):  # pyright: ignore[reportArgumentType]
            pass

    with pytest.raises(Exception, match="403"):
        asyncio.run(knock())


#: None of it means anything.
SAID = (
    "[]",
    "{",
    '{"type": "x"}',
    '{"type": "subscribe", "after": -1}',
    '{"type": "subscribe", "run": "none"}',
    '{"type": "start_phase", "phase": "evomerge", "config": {"models": []}}',
)


@pytest.mark.slow
def test_what_is_not_understood_is_answered(server: Server) -> None:
    async def talk() -> list[dict[str, Any]]:
        async with server.watch() as socket_:
            await socket_.recv()
            found = []
            for said in SAID:
                await socket_.send(said)
                found.append(json.loads(await socket_.recv()))
            await socket_.send('{"type": "ping"}')
            assert json.loads(await socket_.recv())["type"] == "pong"
            return found

    found = asyncio.run(talk())
    assert [m["type"] for m in found] == ["error"] * 6
    assert [m["status"] for m in found] == [422, 422, 422, 422, 404, 422]
