"""The routes of live events."""

from __future__ import annotations

import asyncio
import contextlib
import json
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

router = APIRouter(tags=["live"])

#: Seconds that a client has to say who it is, and to take a message.
PATIENCE = 10.0
SLOW = 30.0
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
    if hub.watchers >= socket.app.state.options.watchers:
        await socket.close(1013, "too many watchers")
        return
    hub.watchers += 1
    try:
        await Client(socket, hub).carry()
    except (WebSocketDisconnect, TimeoutError):
        with contextlib.suppress(RuntimeError):
            await socket.close(1008)
    finally:
        hub.watchers -= 1


def _same(origin: str, socket: WebSocket) -> bool:
    host = origin.partition("://")[2]
    return host == socket.headers.get("host") or origin in socket.app.state.options.origins


class Client:
    """One connection."""

    def __init__(self, socket: WebSocket, hub: Hub) -> None:
        self._socket, self._hub = socket, hub
        self._sending: asyncio.Task[None] | None = None

    async def carry(self) -> None:
        """Greet, and answer what is asked until the client goes."""
        user = await self._who()
        if user is None:
            return
        welcome = {"type": "welcome", "user": user.name, "role": user.role}
        await self._send({**welcome, "position": self._hub.position})
        try:
            while True:
                await self._answer(user, await self._socket.receive_text())
        finally:
            if self._sending is not None:
                self._sending.cancel()

    async def _who(self) -> User | None:
        """The user, by the header or by the first message; None where it is nobody."""
        access: Access = self._socket.app.state.access
        secret = bearer(self._socket)
        if secret is None:
            text = await asyncio.wait_for(self._socket.receive_text(), PATIENCE)
            with contextlib.suppress(ValidationError):
                said = Authenticate.model_validate_json(text)
                secret = said.token if said.type == "authenticate" else None
        try:
            return await asyncio.to_thread(access.user, secret, address(self._socket))
        except Problem as problem:
            await self._send({**problem.body, "type": "error"})
            await self._socket.close(1008)
            return None

    async def _answer(self, user: User, text: str) -> None:
        try:
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
            if isinstance(error, WebSocketDisconnect | TimeoutError | RuntimeError):
                raise
            if isinstance(error, ValidationError | ValueError):
                error = Problem(422, "The message is not valid", str(error))
            await self._send({**problem_of(error).body, "type": "error"})

    async def _subscribe(self, wanted: Subscribe) -> None:
        desk = self._socket.app.state.desk
        run = None if wanted.run is None else await asyncio.to_thread(desk.name, wanted.run)
        after = self._hub.position if wanted.after is None else wanted.after
        if self._sending is not None:
            self._sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sending
        await self._send({"type": "subscribed", "run": run, "after": after})
        self._sending = asyncio.create_task(self._feed(after, run))

    async def _feed(self, after: int, run: str | None) -> None:
        """Send what comes; a client that takes nothing for long is let go."""
        try:
            async for told in stream(self._hub, after, run):
                for text in told.texts:
                    await asyncio.wait_for(self._socket.send_text(text), SLOW)
        except TimeoutError:
            await self._socket.close(1013, "too slow")
        except (WebSocketDisconnect, RuntimeError):
            return

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
    start = hub.position if after is None else after
    return StreamingResponse(
        _lines(hub, start, name), media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )  # fmt: skip


async def _lines(hub: Hub, start: int, run: str | None) -> AsyncIterator[str]:
    hub.watchers += 1
    source = stream(hub, start, run)
    try:
        yield f": position {start}\n\n"
        coming = asyncio.ensure_future(anext(source))
        while True:
            done, _ = await asyncio.wait({coming}, timeout=BEAT)
            if not done:
                yield ": still here\n\n"
                continue
            told = coming.result()
            for text in told.texts:
                kind = json.loads(text)["type"]
                yield f"id: {told.position}\nevent: {kind}\ndata: {text}\n\n"
            coming = asyncio.ensure_future(anext(source))
    finally:
        hub.watchers -= 1
