"""The routes of live events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Depends, Header, Query, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api import asking, shapes
from api.access import VIEWER, Access, address, bearer
from api.live import Hub, stream
from api.problems import Problem, problem_of
from worker.accounts import User

log = logging.getLogger(__name__)

router = APIRouter(tags=["live"])

#: Seconds that a client has to say who it is, and to take a message.
PATIENCE = 10.0
SLOW = 30.0
#: Connections that may be silent about who they are at once.
KNOCKING = 256
#: Seconds between two looks whether a token still counts.
AGAIN = 5.0
#: Seconds between signs of life in a stream of server-sent events.
BEAT = 15.0


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Authenticate(_Message):
    """The first message, where the header was not sent."""

    type: str
    token: str = Field(max_length=500)


class Subscribe(_Message):
    """Which events are wanted."""

    type: str
    run: str | None = Field(None, max_length=200)
    after: int | None = Field(None, ge=0, lt=1 << 62)


class StartPhase(_Message):
    """A run to be started."""

    type: str
    phase: str = Field("evomerge", pattern="^evomerge$")
    config: shapes.Wanted


@router.websocket("/ws")
async def live(socket: WebSocket) -> None:
    """Events by position, and the source documents' messages: docs/api.md."""
    hub: Hub = socket.app.state.hub
    origin = socket.headers.get("origin")
    if origin is not None and not _same(origin, socket):
        await socket.close(1008, "pages of other sites may not watch")
        return
    await socket.accept()
    try:
        await Client(socket, hub).carry()
    except (WebSocketDisconnect, TimeoutError):
        await _close(socket, 1008)
    except Exception as error:  # a client's, of any kind: it ends with its connection
        log.info("a connection ended: %r", error)
        await _close(socket, 1011)


async def _close(socket: WebSocket, code: int, why: str = "") -> None:
    """Close it, if it is open still."""
    with contextlib.suppress(RuntimeError):
        await socket.close(code, why)


def _same(origin: str, socket: WebSocket) -> bool:
    host = origin.partition("://")[2]
    return host == socket.headers.get("host") or origin in socket.app.state.options.origins


class Client:
    """One connection."""

    def __init__(self, socket: WebSocket, hub: Hub) -> None:
        self._socket, self._hub = socket, hub
        self._secret: str | None = bearer(socket)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def carry(self) -> None:
        """Greet, and answer what is asked until the client goes, or may not watch any more."""
        user = await self._greeted()
        if user is None:
            return
        if self._hub.watchers >= self._socket.app.state.options.watchers:
            await _close(self._socket, 1013, "too many watchers")
            return
        self._hub.watchers += 1
        self._tasks["guard"] = asyncio.create_task(self._guard())
        try:
            await self._converse(user)
        finally:
            self._hub.watchers -= 1
            for task in self._tasks.values():
                task.cancel()

    async def _greeted(self) -> User | None:
        """The user, once the client has said who it is; few may be silent at once."""
        if self._secret is not None:
            return await self._who()
        if self._hub.knocking >= KNOCKING:
            await _close(self._socket, 1013, "too many strangers")
            return None
        self._hub.knocking += 1
        try:
            return await self._who()
        finally:
            self._hub.knocking -= 1

    async def _guard(self) -> None:
        """Let the client go once its token is void."""
        access: Access = self._socket.app.state.access
        while await asyncio.to_thread(access.holds, self._secret):
            await asyncio.sleep(AGAIN)
        await _close(self._socket, 1008, "the token is void")

    async def _converse(self, user: User) -> None:
        welcome = {"type": "welcome", "user": user.name, "role": user.role}
        await self._send({**welcome, "position": self._hub.position})
        while True:
            await self._answer(await self._text())

    async def _text(self) -> str:
        """The next message; one in bytes is none."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        return message.get("text") or ""

    async def _who(self) -> User | None:
        """The user, by the header or by the first message; None where it is nobody."""
        access: Access = self._socket.app.state.access
        if self._secret is None:
            text = await asyncio.wait_for(self._text(), PATIENCE)
            with contextlib.suppress(ValidationError):
                said = Authenticate.model_validate_json(text)
                self._secret = said.token if said.type == "authenticate" else None
        try:
            return await asyncio.to_thread(access.user, self._secret, address(self._socket))
        except Problem as problem:
            await self._send({**problem.body, "type": "error"})
            await self._socket.close(1008)
            return None

    async def _answer(self, text: str) -> None:
        """Do what a message asks; each counts as a request."""
        access: Access = self._socket.app.state.access
        try:
            user = await asyncio.to_thread(access.user, self._secret, address(self._socket))
            message = json.loads(text)
            kind = message.get("type") if isinstance(message, dict) else None
            if kind == "subscribe":
                await self._subscribe(Subscribe.model_validate(message))
            elif kind == "start_phase":
                await self._start(user, StartPhase.model_validate(message))
            elif kind == "ping":
                await self._send({"type": "pong", "position": self._hub.position})
            else:
                raise Problem(
                    422, "That message is not known", "Send subscribe, start_phase or ping."
                )
        except Exception as error:
            if isinstance(error, WebSocketDisconnect | TimeoutError):
                raise
            if isinstance(error, ValidationError | ValueError):
                error = Problem(422, "The message is not valid", str(error))
            await self._send({**problem_of(error).body, "type": "error"})

    async def _subscribe(self, wanted: Subscribe) -> None:
        desk = self._socket.app.state.desk
        run = None if wanted.run is None else await asyncio.to_thread(desk.name, wanted.run)
        after = self._hub.position if wanted.after is None else wanted.after
        if before := self._tasks.pop("feed", None):
            before.cancel()
            await asyncio.wait({before})
        await self._send({"type": "subscribed", "run": run, "after": after})
        self._tasks["feed"] = asyncio.create_task(self._feed(after, run))

    async def _feed(self, after: int, run: str | None) -> None:
        """Send what comes; a client that takes nothing for long is let go."""
        while True:
            try:
                async for told in stream(self._hub, after, run):
                    for text in told.texts:
                        await asyncio.wait_for(self._socket.send_text(text), SLOW)
                    after = told.position
            except TimeoutError:
                return await _close(self._socket, 1013, "too slow")
            except (WebSocketDisconnect, RuntimeError):
                return None  # it is gone
            except Exception as error:  # the log's: it goes on where it was
                log.warning("a client waits for the log: %s", error)
                await asyncio.sleep(1.0)

    async def _start(self, user: User, wanted: StartPhase) -> None:
        if not user.may("submitter"):
            raise Problem(403, "You may not do that", f"{user.name} is a {user.role}.")
        made = await asyncio.to_thread(
            asking.submitted, self._socket.app.state, wanted.config, None, user
        )
        await self._send({"type": "started", "run": json.loads(bytes(made.body))["run"]})

    async def _send(self, message: dict[str, Any]) -> None:
        await asyncio.wait_for(self._socket.send_text(json.dumps(message)), SLOW)


@router.get("/live", response_class=StreamingResponse, dependencies=[Depends(VIEWER)])
async def events(
    request: Request,
    run: str | None = Query(None, max_length=200),
    after: int | None = Query(None, ge=0, lt=1 << 62),
    last_event_id: str | None = Header(None, max_length=30),
) -> StreamingResponse:
    """The same events as server-sent events; ids are positions."""
    hub: Hub = request.app.state.hub
    name = None if run is None else await asyncio.to_thread(request.app.state.desk.name, run)
    if last_event_id is not None and last_event_id.isdecimal():
        after = int(last_event_id)
    if hub.watchers >= request.app.state.options.watchers:
        raise Problem(503, "Too many watchers", "Ask again later.", {"Retry-After": "30"})
    start = hub.position if after is None else after
    return StreamingResponse(
        _lines(request, hub, start, name), media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )  # fmt: skip


async def _lines(request: Request, hub: Hub, start: int, run: str | None) -> AsyncIterator[str]:
    access: Access = request.app.state.access
    hub.watchers += 1
    source = stream(hub, start, run)
    coming = asyncio.ensure_future(anext(source))
    looked = time.monotonic()
    try:
        yield f": position {start}\n\n"
        while True:
            done, _ = await asyncio.wait({coming}, timeout=BEAT)
            if time.monotonic() - looked > AGAIN:
                looked = time.monotonic()
                if not await asyncio.to_thread(access.holds, bearer(request)):
                    return
            if not done:
                yield ": still here\n\n"
                continue
            told = coming.result()
            *before, last = told.texts
            for text in before:
                yield f"event: {json.loads(text)['type']}\ndata: {text}\n\n"
            yield f"id: {told.position}\nevent: event\ndata: {last}\n\n"
            coming = asyncio.ensure_future(anext(source))
    finally:
        hub.watchers -= 1
        coming.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await coming
        await source.aclose()
