"""Live events over WebSocket and server-sent events.

One thread follows the log by position and keeps its newest events; all clients share their messages.
Each client has a position of its own and gets the events after it. A slow client holds up no other
client; for a client that was away the log is read. No event is lost or sent twice, because each
client's position is one of the log.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import json
import logging
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent_forge.api.access.authorization import VIEWER, Access, address, bearer, same_origin
from agent_forge.api.problems import UNPROCESSABLE, HttpError, problem_of
from agent_forge.api.routes import phases
from agent_forge.api.schemas import bodies as schemas
from agent_forge.api.schemas.runs import Json
from agent_forge.api.state import run_cache
from agent_forge.api.state.run_cache import RunReader
from agent_forge.events import Envelope, EventsError
from agent_forge.runs import kinds
from agent_forge.runs.errors import ForgeError
from agent_forge.runs.history.repository import history, named_stream
from agent_forge.runs.kinds import wording
from agent_forge.runs.record.events import ENDED, Cancelled, Completed
from agent_forge.runs.streams import run_of
from agent_forge.worker.commands.accounts import User

log = logging.getLogger(__name__)

router = APIRouter(tags=["live"])

#: Seconds that a client has to take a message.
SLOW = 30.0
#: Seconds between two checks that a client's token is still valid.
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
    config: Json

    def wanted(self) -> schemas.Phase:
        """Return the run to start as a body of the phases' routes. Raises ValidationError."""
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
    """Close the socket if it is still open, with the WebSocket status `code` and the reason `why`."""
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):
        await socket.close(code, why)


class Client:
    """One client's WebSocket connection."""

    def __init__(self, socket: WebSocket, hub: Hub) -> None:
        self._socket, self._hub = socket, hub
        self._secret: str | None = bearer(socket)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def carry(self) -> None:
        """Greet the client and answer its messages, until it goes or its token is void."""
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
        """Return the client's user, once it has sent its token; None if it may not stay."""
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
            text = await asyncio.wait_for(self._text(), self._socket.app.state.options.stranger_seconds)
            with contextlib.suppress(ValidationError):
                message = Authenticate.model_validate_json(text)
                self._secret = message.token if message.type == "authenticate" else None
        try:
            return await asyncio.to_thread(access.user, self._secret, address(self._socket))
        except HttpError as problem:
            await self._send({**problem.body, "type": "error"})
            await _close(self._socket, 1008)
            return None

    async def _answer(self, text: str) -> None:
        """Do what a message asks and send the answer; each message counts as a request."""
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
                raise HttpError(422, UNPROCESSABLE, "Send subscribe, start_phase or ping.")
        except Exception as error:
            if isinstance(error, WebSocketDisconnect | TimeoutError):
                raise
            if isinstance(error, ValidationError | ValueError):
                error = HttpError(422, UNPROCESSABLE, _said(error))
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
        """Send all events after a position, also those to come; close a client that takes nothing."""
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
            raise HttpError(403, "Forbidden", f"{user.name} is a {user.role}.")
        response = await phases.started(self._socket.app.state, message.wanted(), None, user)
        await self._send({"type": "started", **json.loads(bytes(response.body))})

    async def _send(self, message: dict[str, object]) -> None:
        await asyncio.wait_for(self._socket.send_text(json.dumps(message)), SLOW)


def _said(error: ValidationError | ValueError) -> str:
    """Return the faults of a message as "FIELD: FAULT; …", or the error's text."""
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
        raise HttpError(503, "Service Unavailable", why, {"Retry-After": "30"})
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


#: Seconds between two looks at the log.
POLL = 0.05
#: Number of newest messages that the hub keeps.
NEWEST = 4096
#: Rows that are read at once for a client that was away.
PAGE = 500


@dataclass(frozen=True)
class Message:
    """The messages that one event causes, as JSON texts; the last is the event itself."""

    position: int
    run: str
    texts: tuple[str, ...]


class Hub:
    """Follower of the log that keeps the newest messages for all clients."""

    def __init__(self, desk: RunReader) -> None:
        self._desk = desk
        self._told: list[Message] = []
        #: Everything up to here is in `_told`, or was before it.
        self.position = 0
        self._first = 0
        self._stop = threading.Event()
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._past: dict[str, int] = {}
        self._readers = ThreadPoolExecutor(4, "hub-reader")

    def start(self) -> None:
        """Start the thread that follows the log from its present end."""
        self._loop = asyncio.get_running_loop()
        self.position = self._first = self._desk.end()
        self._thread = threading.Thread(target=self._follow, name="hub", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread that follows the log."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _follow(self) -> None:
        while not self._stop.wait(POLL):
            try:
                rows = self._desk.store.read_all(self.position, PAGE)
                messages = self._all(rows)
            except Exception:  # whatever it is, the next look may go well
                log.exception("the log cannot be followed")
                self._stop.wait(1.0)
                continue
            if rows and self._loop is not None:
                self._loop.call_soon_threadsafe(self._arrived, messages, rows[-1].position)
                while self.position < rows[-1].position and not self._stop.wait(0.001):
                    pass

    def _arrived(self, messages: list[Message], position: int) -> None:
        """Add new events and wake all waiting clients; runs in the event loop."""
        self._told += messages
        if len(self._told) > NEWEST:
            self._first = self._told[-NEWEST - 1].position
            del self._told[:-NEWEST]
        self.position = position
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @property
    def lives(self) -> bool:
        """True if the thread that follows the log is alive."""
        return self._thread is not None and self._thread.is_alive()

    def _all(self, rows: Sequence[Envelope]) -> list[Message]:
        """Return the messages of all rows; leave out, and log, a row whose message cannot be made."""
        messages = []
        for row in rows:
            try:
                message = self.tell(row)
            except Exception:
                log.exception("event %d cannot be told", row.position)
                continue
            if message is not None:
                messages.append(message)
        return messages

    def tell(self, row: Envelope) -> Message | None:
        """Return a row's Message, the texts for clients; None if the row is no event of a run."""
        if not kinds.is_run(row.stream):
            return None
        run = run_of(row.stream)
        event = run_cache.event(row, self._offset(run) + row.version, self._names(run))
        place = {"position": row.position, "run": run, "place": event["place"]}
        try:
            messages = self._also(run, row, event["data"])
        except (EventsError, ForgeError) as error:
            log.warning("run %s cannot be folded: %s", run, error)
            messages = []
        # Last, because a client goes on behind the last event that it saw.
        messages.append({"type": "event", **place, "event": event})
        return Message(row.position, run, tuple(json.dumps(m, ensure_ascii=False) for m in messages))

    def _also(self, run: str, row: Envelope, data: dict[str, object]) -> list[Json]:
        """Return the source documents' messages for a row that ends a unit or the run; else []."""
        place = {"position": row.position, "run": run}
        kind = kinds.kind_of(row.stream)
        assert kind
        unit = kind.view.unit_of(row)
        if unit is not None:
            with self._desk.state(run) as state:
                return [{**kind.view.message(state, unit), **place}]
        if row.type in ENDED:
            with self._desk.state(run) as state:
                done = {"type": "complete", "phase": kind.name, **place, "status": row.type}
                done |= {"task_id": run, **kind.view.ending(state), "reason": data.get("reason")}
            if row.type == Completed.type:
                return [done]
            detail = wording.summary_line(kind.name, row.type, data, self._names(run))
            title = f"The run {'was ' if row.type == Cancelled.type else ''}{row.type}"
            return [{**done, "type": "error", "title": title, "detail": detail, "message": detail}]
        return []

    def _names(self, run: str) -> wording.Names:
        """Return recipe id → display name; {} for a run that cannot be folded."""
        try:
            with self._desk.state(run) as state:
                return self._desk.seen(run, "names", state, wording.names)
        except (EventsError, ForgeError):
            return {}

    def _offset(self, run: str) -> int:
        """Return the number of events that a run has from before it was forked; 0 if it is no fork."""
        if run not in self._past:
            if len(self._past) > 10_000:
                self._past.clear()
            store = self._desk.store
            version = store.version(named_stream(store, run))
            rows = sum(1 for _ in history(store, run, version))
            self._past[run] = rows - version
        return self._past[run]

    async def after(self, position: int, run: str | None) -> tuple[list[Message], int]:
        """Wait for an event after a position; return (PAGE messages at most, the position reached)."""
        while True:
            changed, now = self._changed, self.position
            if position < self._first:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._readers, self._read, position, run)
            if position < now:
                start = bisect.bisect_right(self._told, position, key=lambda message: message.position)
                messages = [t for t in self._told[start:] if run in (None, t.run)]
                return messages[:PAGE], messages[PAGE - 1].position if len(messages) > PAGE else now
            await changed.wait()

    def _read(self, position: int, run: str | None) -> tuple[list[Message], int]:
        """Return (messages, position reached) as `after` does, from the log: for a late client."""
        store = self._desk.store
        if run is None:
            rows = store.read_all(position, PAGE)
            return self._all(rows), rows[-1].position if rows else self.position
        end = store.end()
        behind = (row for row in store.iterate(named_stream(store, run)) if row.position > position)
        rows = list(islice(behind, PAGE))
        last = rows[-1].position if rows else position
        return self._all(rows), last if len(rows) == PAGE else max(end, last)


async def stream(hub: Hub, position: int, run: str | None) -> AsyncGenerator[Message]:
    """Yield the messages of `run`, or of all runs, after a position as they come, without an end."""
    while True:
        messages, position = await hub.after(position, run)
        for message in messages:
            yield message
