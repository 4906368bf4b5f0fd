"""The routes of live events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.access.authorization import VIEWER, Access, address, bearer, same_origin
from api.live.event_stream import Hub, stream
from api.problems import UNPROCESSABLE, Problem, problem_of
from api.routes import phases
from api.schemas import bodies as schemas
from worker.commands.accounts import User

log = logging.getLogger(__name__)

router = APIRouter(tags=["live"])

#: Seconds that a client has to take a message.
SLOW = 30.0
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
    """Message that subscribes to the events of a run or of all (a channel in the source documents)."""

    type: str
    run: Annotated[schemas.Plain, Field(max_length=200)] | None = None
    channel: Literal["phase_updates"] | None = None
    after: int | None = Field(None, ge=0, lt=1 << 62)


class StartPhase(_Message):
    """A run to be started; `config` is a body of `POST /runs`, or the source documents' form of it."""

    type: str
    phase: str = Field("evomerge", max_length=100)
    config: dict[str, Any]

    def wanted(self) -> schemas.Phase:
        """Return what is to be started. Raises ValidationError."""
        return schemas.Phase.model_validate({"phase": self.phase, "config": self.config})


@router.websocket("/ws")
async def live(socket: WebSocket) -> None:
    """Send events by position, and the source documents' messages: docs/api.md."""
    hub: Hub = socket.app.state.hub
    if not same_origin(socket, socket.app.state.options):
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
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):
        await socket.close(code, why)


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
        seats = self._socket.app.state.seats
        if why := seats.why_none(user.name):
            await _close(self._socket, 1013, why)
            return
        seats.take(user.name)
        self._tasks["guard"] = asyncio.create_task(self._guard())
        try:
            await self._converse(user)
        finally:
            seats.give_back(user.name)
            for task in self._tasks.values():
                task.cancel()

    async def _greeted(self) -> User | None:
        """Return the user, once the client has said who it is; None if it may not stay."""
        if self._secret is not None:
            return await self._who()
        room, saying = self._socket.app.state.strangers, asyncio.ensure_future(self._who())
        ticket = room.enter(address(self._socket), saying.cancel)
        try:
            await asyncio.wait({saying})
            return saying.result()
        except asyncio.CancelledError:
            if not saying.cancelled():  # it is this connection that ends
                saying.cancel()
                raise
            await _close(self._socket, 1013, "others wait who say who they are")
            return None
        finally:
            room.leave(ticket)

    async def _guard(self) -> None:
        """Close the connection once the client's token is void."""
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
        """Return the next message's text; "" for a message in bytes. Raises WebSocketDisconnect."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        return message.get("text") or ""

    async def _who(self) -> User | None:
        """Return the user, by the header or by the first message; None if the token has no user."""
        access: Access = self._socket.app.state.access
        if self._secret is None:
            text = await asyncio.wait_for(
                self._text(), self._socket.app.state.options.stranger_seconds
            )
            with contextlib.suppress(ValidationError):
                message = Authenticate.model_validate_json(text)
                self._secret = message.token if message.type == "authenticate" else None
        try:
            return await asyncio.to_thread(access.user, self._secret, address(self._socket))
        except Problem as problem:
            await self._send({**problem.body, "type": "error"})
            await _close(self._socket, 1008)
            return None

    async def _answer(self, text: str) -> None:
        """Do what a message asks; each counts as a request."""
        access: Access = self._socket.app.state.access
        phase = "evomerge"
        try:
            user = await asyncio.to_thread(access.user, self._secret, address(self._socket))
            message = json.loads(text)
            kind = message.get("type") if isinstance(message, dict) else None
            phase = str(message.get("phase", phase))[:100] if kind else phase
            if kind == "subscribe":
                await self._subscribe(Subscribe.model_validate(message))
            elif kind == "start_phase":
                await self._start(user, StartPhase.model_validate(message))
            elif kind == "ping":
                await self._send({"type": "pong", "position": self._hub.position})
            else:
                raise Problem(422, UNPROCESSABLE, "Send subscribe, start_phase or ping.")
        except Exception as error:
            if isinstance(error, WebSocketDisconnect | TimeoutError):
                raise
            if isinstance(error, ValidationError | ValueError):
                error = Problem(422, UNPROCESSABLE, _said(error))
            body = problem_of(error).body
            fields = {"type": "error", "phase": phase, "message": body["detail"]}
            await self._send({**body, **fields})

    async def _subscribe(self, message: Subscribe) -> None:
        desk = self._socket.app.state.desk
        run = None if message.run is None else await asyncio.to_thread(desk.name, message.run)
        after = self._hub.position if message.after is None else message.after
        if before := self._tasks.pop("feed", None):
            before.cancel()
            await asyncio.wait({before})
        await self._send({"type": "subscribed", "run": run, "after": after})
        self._tasks["feed"] = asyncio.create_task(self._feed(after, run))

    async def _feed(self, after: int, run: str | None) -> None:
        """Send what comes; a client that takes nothing for long is let go."""
        while True:
            try:
                async for message in stream(self._hub, after, run):
                    for text in message.texts:
                        await asyncio.wait_for(self._socket.send_text(text), SLOW)
                    after = message.position
            except TimeoutError:
                return await _close(self._socket, 1013, "too slow")
            except (WebSocketDisconnect, RuntimeError):
                return None  # it is gone
            except Exception as error:  # the log's: it goes on where it was
                log.warning("a client waits for the log: %s", error)
                await asyncio.sleep(1.0)

    async def _start(self, user: User, message: StartPhase) -> None:
        if not user.may("submitter"):
            raise Problem(403, "Forbidden", f"{user.name} is a {user.role}.")
        response = await phases.started(self._socket.app.state, message.wanted(), None, user)
        await self._send({"type": "started", **json.loads(bytes(response.body))})

    async def _send(self, message: dict[str, Any]) -> None:
        await asyncio.wait_for(self._socket.send_text(json.dumps(message)), SLOW)


def _said(error: ValidationError | ValueError) -> str:
    """Return what is wrong with a message, field by field."""
    if not isinstance(error, ValidationError):
        return str(error)
    parts = []
    for fault in error.errors(include_url=False):
        field = ".".join(map(str, fault["loc"]))
        message = fault["msg"].removeprefix("Value error, ")
        parts.append(f"{field}: {message}" if field else message)
    return "; ".join(parts)


@router.get("/live", response_class=StreamingResponse)
async def events(
    request: Request,
    run: str | None = Query(None, max_length=200),
    after: int | None = Query(None, ge=0, lt=1 << 62),
    last_event_id: str | None = Header(None, max_length=30),
    user: User = Depends(VIEWER),
) -> StreamingResponse:
    """Send the same events as server-sent events; ids are positions."""
    hub: Hub = request.app.state.hub
    name = None if run is None else await asyncio.to_thread(request.app.state.desk.name, run)
    if last_event_id is not None and last_event_id.isdecimal():
        after = int(last_event_id)
    if why := request.app.state.seats.why_none(user.name):
        raise Problem(503, "Service Unavailable", why, {"Retry-After": "30"})
    start = hub.position if after is None else after
    return StreamingResponse(
        _lines(request, user, start, name),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _lines(request: Request, user: User, start: int, run: str | None) -> AsyncIterator[str]:
    access, seats = request.app.state.access, request.app.state.seats
    seats.take(user.name)
    source = stream(request.app.state.hub, start, run)
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
            message = coming.result()
            *before, last = message.texts
            for text in before:
                yield f"event: {json.loads(text)['type']}\ndata: {text}\n\n"
            yield f"id: {message.position}\nevent: event\ndata: {last}\n\n"
            coming = asyncio.ensure_future(anext(source))
    finally:
        seats.give_back(user.name)
        coming.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await coming
        await source.aclose()
