"""The HTTP server under the application: limits of size and time, places for waiting clients.

uvicorn bounds neither the time that a client takes to send a request nor the number of clients that
send none. `bounded` adds both to its h11 protocol, which bounds the size of URL and headers.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any, Literal

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from agent_forge.api.access.waiting import WaitingRoom
from agent_forge.api.options import Options

#: Part of a request that a connection waits for.
Phase = Literal["head", "body", "idle"]


def server(app: Any, options: Options) -> uvicorn.Server:
    """Return a uvicorn server of `app` with these limits, not started; allow it more open files."""
    _raise_open_files()
    config = uvicorn.Config(
        app,
        http=bounded(options),
        h11_max_incomplete_event_size=options.head,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=bool(options.proxies),
        forwarded_allow_ips=list(options.proxies),
        timeout_graceful_shutdown=3,
        timeout_keep_alive=options.idle_seconds,
        ws_ping_interval=20.0,
        ws_max_size=1 << 20,
    )
    return uvicorn.Server(config)


def _raise_open_files() -> None:
    """Allow this process as many open files as the system lets it have: a connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def bounded(options: Options) -> type[H11Protocol]:
    """Return a class of uvicorn's protocol with the limits of `options` and one room for all."""
    per_address = options.connections if options.proxies else options.connections_per_address

    class Bounded(_Bounded):
        limits = options
        room = WaitingRoom(options.connections, per_address)

    return Bounded


class _Bounded(H11Protocol):
    """One connection.

    It has a place in the room, and a time limit, as long as it owes a request: from its beginning to
    the end of the head, to the end of the body, and between two requests. A client that takes no
    answer has a time limit, too.
    """

    limits: Options
    room: WaitingRoom

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._phase: Phase | None = None
        self._ticket: tuple[str, object] | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._gone = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock of the first request's head."""
        super().connection_made(transport)
        self._wait_for("head")

    def data_received(self, data: bytes) -> None:
        """Read the data, then start the clock of what the client owes now."""
        super().data_received(data)
        self._wait_for({h11.IDLE: "head", h11.SEND_BODY: "body"}.get(self.conn.their_state))

    def on_response_complete(self) -> None:
        """Start the clock of the next request, or of the rest of a body that was answered early."""
        super().on_response_complete()
        self._wait_for({h11.IDLE: "idle", h11.SEND_BODY: "body"}.get(self.conn.their_state))

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Leave the room; hand the connection to the WebSocket's protocol, which has other limits."""
        self._leave()
        super().handle_websocket_upgrade(event)

    def pause_writing(self) -> None:
        """Start the clock of a client that takes no answer."""
        super().pause_writing()
        self._stall = self.loop.call_later(self.limits.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the clock of a client that takes the answer again."""
        super().resume_writing()
        self._stop_stall()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the place in the room and stop all clocks."""
        self._leave()
        self._stop_stall()
        super().connection_lost(exc)

    def _wait_for(self, phase: Any) -> None:
        """Start the time limit of `phase`, none for None; the phase that is on keeps its limit."""
        if self._gone or phase == self._phase:
            return
        self._phase = phase
        self._stop_clock()
        if phase is None:
            self._give_up_place()
            return
        if self._ticket is None:
            address = self.client[0] if self.client else "?"
            self._ticket = self.room.enter(address, self.transport.abort)
        self._clock = self.loop.call_later(self._seconds(phase), self.transport.abort)

    def _seconds(self, phase: Phase) -> float:
        return {
            "head": self.limits.head_seconds,
            "body": self.limits.body_seconds,
            "idle": self.limits.idle_seconds,
        }[phase]

    def _leave(self) -> None:
        self._gone = True
        self._stop_clock()
        self._give_up_place()

    def _give_up_place(self) -> None:
        if self._ticket is not None:
            self.room.leave(self._ticket)
            self._ticket = None

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _stop_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
