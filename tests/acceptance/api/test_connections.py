"""What a connection may cost: sizes, times and numbers, against a real server with raw sockets."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from http.client import HTTPResponse
from pathlib import Path

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from agent_forge.api.access.waiting import Seats, WaitingRoom
from agent_forge.api.app import create
from agent_forge.api.options import Options
from agent_forge.api.serving import server as server_of
from agent_forge.cli.operations.serve import listen
from agent_forge.runs.home import Home
from agent_forge.worker.commands import accounts
from testing.waiting import PATIENCE, wait_until

#: As many requests as a test likes.
FREE = {"rate": 1e5, "burst": 100_000}
#: Times so short that they are soon over. A request of a test may miss them on a busy machine.
BRIEF = {"head_seconds": 0.5, "body_seconds": 0.5, "idle_seconds": 3, "stall_seconds": 0.5}


@dataclass
class Running:
    """A server in a thread of its own."""

    port: int
    token: str
    home: Home

    def open(self, said: bytes = b"") -> socket.socket:
        """A connection that has said this."""
        one = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        one.sendall(said)
        return one

    def get(self, path: str, **headers: str) -> httpx2.Response:
        """GET as the user, on a connection of its own."""
        head = {"Authorization": f"Bearer {self.token}", **headers}
        return httpx2.get(
            f"http://127.0.0.1:{self.port}{path}", headers=head, timeout=PATIENCE, verify=False
        )

    def lives(self) -> bool:
        """Return True if it answers; a request that misses a brief time is cut off."""
        with suppress(httpx2.HTTPError):
            return self.get("/health").status_code == 200
        return False

    def live(self, token: str | None = None):
        """A live connection, with a token or silent."""
        head = {} if token is None else {"Authorization": f"Bearer {token}"}
        place = f"ws://127.0.0.1:{self.port}/ws"
        return connect(place, additional_headers=head, open_timeout=PATIENCE)

    def welcomes(self) -> bool:
        """Return True if the user may have one more live connection."""
        with self.live(self.token) as one, suppress(ConnectionClosed):
            return json.loads(one.recv(PATIENCE))["type"] == "welcome"
        return False


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a server with these bounds instead of the usual ones."""
    ended = []

    def begin(**bounds) -> Running:
        home = Home(tmp_path / f"home-{len(ended)}")
        store = home.open_store()
        accounts.add(store, "ada", "admin")
        token = accounts.issue(store, "ada")[1]
        store.close()
        options = replace(Options((tmp_path,)), **bounds)
        server, listening = server_of(create(home, options), options), listen("127.0.0.1", 0)
        server.config.lifespan = "on"
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        ended.append((server, thread))
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.02)
        return Running(listening.getsockname()[1], token, home)

    yield begin
    for server, thread in ended:
        server.should_exit = True
        thread.join(PATIENCE)


def closed(connection: socket.socket) -> bool:
    """Return True if the other side ends the connection."""
    connection.settimeout(PATIENCE)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def drip(connection: socket.socket) -> None:
    """Send a byte a moment. Raises OSError once the other side has ended the connection."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        connection.sendall(b" ")
        time.sleep(0.05)


def status(connection: socket.socket) -> int:
    """The status of the answer, which is read to its end: head and body may come apart."""
    connection.settimeout(PATIENCE)
    answer = HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def test_a_url_or_headers_without_end_are_cut_off(start: Start) -> None:
    """Before, 64 MiB of them kept everybody waiting for ten seconds, and memory grew."""
    running = start(head=4096)
    for begin in (b"GET /", b"GET / HTTP/1.1\r\nX: ", b"GET / HTTP/1.1\r\nHost: localhost\r\n"):
        more = b"Y: z\r\n" * 200 if begin.endswith(b"\r\n") else b"a" * 1200
        with running.open(begin) as one:
            sent = 0
            with suppress(OSError):
                while sent < 4 << 20:
                    sent += one.send(more)
                    if sent > 8192:
                        time.sleep(0.05)
            assert sent < 1 << 20
            assert closed(one)
    assert running.get("/health").status_code == 200


def test_head_and_body_have_their_time(start: Start) -> None:
    """Half a request stayed for ever; one byte a moment does not prolong it."""
    running = start(**BRIEF)
    head = (
        f"POST /runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {running.token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
    ).encode()
    halves = [running.open(said) for said in (b"", b"GET /he", b"GET / HTTP/1.1\r\nA: b\r\n", head)]
    dripping = running.open(head)
    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        drip(dripping)
    assert all(closed(one) for one in halves)
    for one in [*halves, dripping]:
        one.close()
    wait_until(running.lives, "the server answers others")


def test_a_connection_between_requests_ends_and_serves_several_before(start: Start) -> None:
    """Requests on one connection are answered; a silent one is closed."""
    said = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with start().open() as one:
        for _ in range(3):
            one.sendall(said)
            assert status(one) == 200
    with start(idle_seconds=BRIEF["idle_seconds"]).open(said) as one:
        assert closed(one)


def test_half_requests_do_not_shut_others_out(start: Start) -> None:
    """The oldest of whoever holds most go; others are answered meanwhile."""
    running = start(connections=20, connections_per_address=20, head_seconds=3600.0)
    halves = [running.open(b"GET / HT") for _ in range(100)]
    assert running.get("/health").status_code == 200
    assert all(closed(one) for one in halves[:60])
    for one in halves:
        one.close()


@pytest.mark.slow
def test_a_client_that_takes_no_answer_is_let_go(start: Start) -> None:
    """An answer that nobody reads would hold its memory for ever.

    The test reads nothing either: reading would let the server go on, and end the connection later.
    """
    running = start(**FREE, stall_seconds=BRIEF["stall_seconds"])
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect(("127.0.0.1", running.port))
    one.settimeout(2)
    said = f"GET /settings HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {running.token}\r\n\r\n"
    with suppress(OSError):
        for _ in range(2000):
            one.sendall(said.encode() * 10)
    ended = select.poll()
    ended.register(one, 0)  # POLLHUP and POLLERR alone: the other side is gone
    assert ended.poll(1000 * PATIENCE)
    one.close()
    assert running.get("/health").status_code == 200


def test_silent_live_connections_do_not_keep_others_out(start: Start) -> None:
    """256 that never said who they are kept every dashboard away; now the oldest of them go."""
    running = start(strangers=8, strangers_per_address=8, stranger_seconds=3600.0)
    with ExitStack() as held:
        silent = [held.enter_context(running.live()) for _ in range(8)]
        late = held.enter_context(running.live())
        late.send(json.dumps({"type": "authenticate", "token": running.token}))
        assert json.loads(late.recv(PATIENCE))["type"] == "welcome"
        with pytest.raises(ConnectionClosed):
            silent[0].recv(PATIENCE)
        assert silent[0].close_code == 1013


def test_a_stranger_has_its_time(start: Start) -> None:
    """A live connection that says nothing is closed."""
    running = start(stranger_seconds=0.5)
    with running.live() as silent:
        with pytest.raises(ConnectionClosed):
            silent.recv(PATIENCE)
        assert silent.close_code == 1008


def test_one_user_has_so_many_live_connections(start: Start) -> None:
    """Others keep theirs; a place that is given back can be taken again."""
    running = start(user_watchers=3)
    store = running.home.open_store()
    accounts.add(store, "bob", "viewer")
    bob = accounts.issue(store, "bob")[1]
    store.close()
    with ExitStack() as held:
        for _ in range(3):
            one = held.enter_context(running.live(running.token))
            assert json.loads(one.recv(PATIENCE))["type"] == "welcome"
        fourth = held.enter_context(running.live(running.token))
        with pytest.raises(ConnectionClosed):
            fourth.recv(PATIENCE)
        assert fourth.close_code == 1013
        assert running.get("/live").status_code == 503
        other = held.enter_context(running.live(bob))
        assert json.loads(other.recv(PATIENCE))["user"] == "bob"
    wait_until(running.welcomes, "the places are given back")


def test_a_client_that_goes_away_leaves_no_traceback(start: Start, capfd) -> None:
    """A browser's page that is closed is no error of the server."""
    running = start(**FREE)
    for _ in range(3):
        with running.live(running.token) as one, running.live() as silent:
            one.recv(PATIENCE)
            one.send(json.dumps({"type": "subscribe", "after": 0}))
            for gone in (one, silent):
                gone.socket.shutdown(socket.SHUT_RDWR)
    time.sleep(1.5)
    assert running.get("/health").status_code == 200
    told = "".join(capfd.readouterr())
    assert "Traceback" not in told
    assert "Exception in ASGI" not in told


@pytest.mark.parametrize(("proxies", "expected"), [((), 429), (("127.0.0.1",), 401)])
def test_only_a_named_proxy_says_where_a_request_comes_from(start: Start, proxies, expected) -> None:
    """Else whoever writes X-Forwarded-For has as many attempts as there are addresses."""
    running = start(wrong_burst=3, wrong_rate=1e-6, proxies=proxies)
    for n in range(4):
        head = {"Authorization": "Bearer no", "X-Forwarded-For": f"10.0.0.{n}"}
        last = running.get("/me", **head).status_code
    assert last == expected


def test_a_room_lets_go_of_the_oldest_of_the_most_crowded_address() -> None:
    """Whoever opens many loses their own, and never another's."""
    gone: list[str] = []
    room = WaitingRoom(5, 4)
    room.enter("quiet", lambda: gone.append("quiet"))
    for n in range(6):
        room.enter("loud", lambda n=n: gone.append(f"loud {n}"))
    assert gone == ["loud 0", "loud 1"]
    ticket = room.enter("third", lambda: gone.append("third"))
    assert gone == ["loud 0", "loud 1", "loud 2"]
    room.leave(ticket)
    room.leave(ticket)
    assert len(room) == 4


def test_seats_are_counted_for_each_user() -> None:
    """One user's bound is not another's."""
    seats = Seats(3, 2)
    assert [seats.why_none("ada") or seats.take("ada") for _ in range(3)][:2] == [None, None]
    assert "ada has 2" in (seats.why_none("ada") or "")
    seats.take("bob")
    assert "too many" in (seats.why_none("eve") or "")
    seats.give_back("bob")
    assert seats.why_none("eve") is None
