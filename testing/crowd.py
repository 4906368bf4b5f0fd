"""Writers and a follower of a log on a server that is taken away from them and comes back."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from agent_forge.events import Envelope, EventStore, New, StoreUnavailableError
from agent_forge.events.databases.postgres import Postgres
from agent_forge.events.databases.postgres import open_store as open_postgres
from tests.acceptance.events.test_kill_at_syscalls import Noted, Verdict, breaks

#: Seconds that somebody waits who was refused: a server that recovers must not be kept from it.
PAUSE = 0.05


class Crowd:
    """Writers and a follower that go on while the server stops and starts; threads of this process.

    Each writer appends to a stream of its own and to one that they share, and notes what was
    acknowledged; one that is told that the log is not available makes the same append again.
    """

    def __init__(self, url: str, writers: int) -> None:
        self.url = url
        self.acknowledged: list[list[str]] = [[] for _ in range(writers)]
        self.followed: list[Envelope] = []
        self.errors: list[BaseException] = []
        self._over, self._written = threading.Event(), threading.Event()
        self._writers = [
            threading.Thread(target=self._safely, args=(self._write, n), daemon=True)
            for n in range(writers)
        ]
        self._follower = threading.Thread(target=self._safely, args=(self._follow,), daemon=True)
        for thread in (*self._writers, self._follower):
            thread.start()

    def _safely(self, work: Callable[..., None], *arguments: int) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            self.errors.append(error)

    def _write(self, writer: int) -> None:
        store = EventStore(Postgres(self.url))
        version = 0
        while not self._over.is_set():
            mine = [f"{writer}/{version + i}" for i in range(1 + version % 3)]
            for stream, expected, names in (
                (f"own-{writer}", version, mine),
                ("shared", None, [f"{name}/shared" for name in mine]),
            ):
                batch = [New(Noted(value=name), name) for name in names]
                while not self._appended(store, stream, expected, batch):
                    pass
                self.acknowledged[writer] += names
            version += len(mine)
        store.close()

    def _appended(self, store: EventStore, stream: str, *append: Any) -> bool:
        with contextlib.suppress(StoreUnavailableError):
            store.append(stream, *append)
            return True
        time.sleep(PAUSE)
        return False

    def _follow(self) -> None:
        store = EventStore(Postgres(self.url))
        while True:
            last = self._written.is_set()
            try:
                rows = store.read_all(self.followed[-1].position if self.followed else 0)
            except StoreUnavailableError:
                time.sleep(PAUSE)
                continue
            self.followed += rows
            if last and not rows:
                break
        store.close()

    def wait(self, appends: int) -> None:
        """Wait until every writer has had `appends` more events acknowledged."""
        for one in self.acknowledged:
            goal = len(one) + appends
            while len(one) < goal and not self.errors:
                time.sleep(0.001)

    def judge(self) -> Verdict:
        """Stop all threads; return the number of lost acknowledged events, and all faults."""
        self._over.set()
        for thread in self._writers:
            thread.join()
        self._written.set()
        self._follower.join()
        with contextlib.closing(open_postgres(self.url)) as store:
            rows = store.read_all(limit=10**7)
        here = [row.key for row in rows]
        promised = [name for one in self.acknowledged for name in one]
        lost = len(set(promised) - set(here))
        wrong = [repr(error) for error in self.errors]
        wrong += [f"{lost} acknowledged events are lost"] if lost else []
        wrong += ["a key is there twice"] if len(set(here)) < len(here) else []
        wrong += ["rows that nobody was told of"] if set(here) != set(promised) else []
        wrong += ["the follower saw something else"] if self.followed != rows else []
        for number, one in enumerate(self.acknowledged):
            mine = [key for key in here if key.partition("/")[0] == str(number)]
            wrong += [f"writer {number}: another order"] if mine != one else []
        return Verdict(lost, wrong + breaks(rows))
