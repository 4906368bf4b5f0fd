"""Events as they are appended: WebSocket and server-sent events.

One thread follows the log by position and keeps its newest events; all clients share their
messages. Each client has a position of its own and asks for the events after it. A slow client holds up
no other client, and a client that was away reads the log itself. No event is lost or sent twice, since
clients count by positions of the log.
"""

from __future__ import annotations

import asyncio
import bisect
import json
import logging
import threading
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

from api.state import views
from api.state.run_cache import Desk
from events import Envelope, EventsError
from runs import kinds
from runs.errors import ForgeError
from runs.history.repository import history, named_stream
from runs.kinds import wording
from runs.record.events import ENDED, Completed
from runs.record.user_events import Cancelled
from runs.streams import run_of

log = logging.getLogger(__name__)

#: Seconds between two looks at the log.
POLL = 0.05
#: Events that are kept told.
NEWEST = 4096
#: Rows that a client who was away reads at once.
PAGE = 500


@dataclass(frozen=True)
class Told:
    """One event, and what else it gives rise to, as JSON texts."""

    position: int
    run: str
    texts: tuple[str, ...]


class Hub:
    """Follows the log."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._told: list[Told] = []
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
        """Begin at the end of the log."""
        self._loop = asyncio.get_running_loop()
        self.position = self._first = self._desk.end()
        self._thread = threading.Thread(target=self._follow, name="hub", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
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

    def _arrived(self, messages: list[Told], position: int) -> None:
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

    def _all(self, rows: Sequence[Envelope]) -> list[Told]:
        """Return the messages of rows; a row whose message cannot be made is logged and left out."""
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

    def tell(self, row: Envelope) -> Told | None:
        """Return a row's messages for clients; None if the row is no event of a run."""
        if not kinds.is_run(row.stream):
            return None
        run = run_of(row.stream)
        event = views.event(row, self._offset(run) + row.version, self._names(run))
        place = {"position": row.position, "run": run, "place": event["place"]}
        try:
            messages = self._also(run, row, event["data"])
        except (EventsError, ForgeError) as error:
            log.warning("run %s cannot be folded: %s", run, error)
            messages = []
        # Last, because a client goes on behind the last event that it saw.
        messages.append({"type": "event", **place, "event": event})
        return Told(row.position, run, tuple(json.dumps(m, ensure_ascii=False) for m in messages))

    def _also(self, run: str, row: Envelope, data: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the source documents' messages."""
        place = {"position": row.position, "run": run}
        kind = kinds.kind_of(row.stream)
        assert kind
        unit = kind.unit_of(row)
        if unit is not None:
            with self._desk.state(run) as state:
                return [{**kind.message(state, unit), **place}]
        if row.type in ENDED:
            with self._desk.state(run) as state:
                done = {"type": "complete", "phase": kind.name, **place, "status": row.type}
                done |= {"task_id": run, **kind.ending(state), "reason": data.get("reason")}
            if row.type == Completed.type:
                return [done]
            detail = wording.gist(kind.name, row.type, data, self._names(run))
            title = f"The run {'was ' if row.type == Cancelled.type else ''}{row.type}"
            return [{**done, "type": "error", "title": title, "detail": detail, "message": detail}]
        return []

    def _names(self, run: str) -> wording.Names:
        """Return display names by recipe id; empty for a run that cannot be folded."""
        try:
            with self._desk.state(run) as state:
                return self._desk.seen(run, "names", state, wording.names)
        except (EventsError, ForgeError):
            return {}

    def _offset(self, run: str) -> int:
        """Return the number of events that a fork has from the time before it was forked."""
        if run not in self._past:
            if len(self._past) > 10_000:
                self._past.clear()
            store = self._desk.store
            version = store.version(named_stream(store, run))
            rows = sum(1 for _ in history(store, run, version))
            self._past[run] = rows - version
        return self._past[run]

    async def after(self, position: int, run: str | None) -> tuple[list[Told], int]:
        """Return the events after a position, waiting for the first, and the new position."""
        while True:
            changed, now = self._changed, self.position
            if position < self._first:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._readers, self._read, position, run)
            if position < now:
                start = bisect.bisect_right(
                    self._told, position, key=lambda message: message.position
                )
                messages = [t for t in self._told[start:] if run in (None, t.run)]
                return messages[:PAGE], messages[PAGE - 1].position if len(messages) > PAGE else now
            await changed.wait()

    def _read(self, position: int, run: str | None) -> tuple[list[Told], int]:
        """Read events after a position from the log, for a client that is too far behind for memory."""
        store = self._desk.store
        if run is None:
            rows = store.read_all(position, PAGE)
            return self._all(rows), rows[-1].position if rows else self.position
        end = store.end()
        behind = (row for row in store.iterate(named_stream(store, run)) if row.position > position)
        rows = list(islice(behind, PAGE))
        last = rows[-1].position if rows else position
        return self._all(rows), last if len(rows) == PAGE else max(end, last)


async def stream(hub: Hub, position: int, run: str | None) -> AsyncGenerator[Told]:
    """Yield the events after a position as they come, without an end."""
    while True:
        messages, position = await hub.after(position, run)
        for message in messages:
            yield message
