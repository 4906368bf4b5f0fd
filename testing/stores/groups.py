"""Contract of the log: threads whose appends share a transaction."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from agent_forge.events import (
    Appended,
    ConcurrencyError,
    EventStore,
    IdempotencyError,
    New,
    StoreUnavailableError,
)
from testing.stores.backend import Backend
from testing.stores.example_events import assert_chained, keys, new
from testing.waiting import PATIENCE, wait_until

#: An append's arguments: stream, expected version, keys.
Call = tuple[str, int | None, str]

#: Two threads share the second transaction.
_GROUP = """
from testing.stores.groups import together
with_other = open_log(place)
together(store, with_other, [("s", 0, "abc"), ("t", 0, "xyz"), ("s", 3, "de")])
"""


def together(store: EventStore, other: EventStore, calls: Sequence[Call]) -> list[Any]:
    """Return what each append returned or raised; all share a transaction, in this order.

    `other` holds the log's lock until all wait behind a first append, of the stream `first`.
    """
    outcomes: dict[int, Any] = {}

    def append(number: int, stream: str, expected: int | None, names: str) -> None:
        try:
            outcomes[number] = store.append(stream, expected, [new(name) for name in names])
        except Exception as error:
            outcomes[number] = error

    every = [("first", None, "0"), *calls]
    threads = [threading.Thread(target=append, args=(n, *call)) for n, call in enumerate(every)]
    with other.database.appending():
        for number, thread in enumerate(threads):
            thread.start()
            wait_until(partial(_waits, store, number), "the thread waits", pause=0.001)
    for thread in threads:
        thread.join(PATIENCE)
    return [outcomes[number + 1] for number in range(len(calls))]


def _waits(store: EventStore, number: int) -> bool:
    """Return True if a thread leads and `number` threads wait behind it."""
    lines = store._group._lines.get(os.getpid())
    return lines is not None and lines[1].locked() and len(lines[0]) == number


class Groups(Backend):
    """Appends of threads of one process."""

    def together(self, place: str, store: EventStore, *calls: Call) -> list[Any]:
        with closing(self.open(place)) as other:
            return together(store, other, calls)

    def test_appends_that_wait_share_a_transaction_and_keep_their_order(
        self, place: str, store: EventStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each gets its own rows, at positions in the order in which the threads came."""
        sizes: list[int] = []
        insert = store.database.insert
        monkeypatch.setattr(
            store.database, "insert", lambda *args: sizes.append(len(args[2])) or insert(*args)
        )
        outcomes = self.together(place, store, ("s", 0, "ab"), ("t", None, "x"), ("s", 2, "c"))
        assert sizes == [1, 4]
        assert [outcome.fresh for outcome in outcomes] == [True] * 3
        rows = store.read_all()
        assert keys(rows) == ["0", *"abxc"]
        assert [row for outcome in outcomes for row in outcome.rows] == rows[1:]
        for stream in "st":
            assert_chained(store.read(stream))

    def test_a_conflict_in_a_group_reaches_its_caller_alone(
        self, place: str, store: EventStore
    ) -> None:
        """The others must not fold and decide again because of it."""
        store.append("s", 0, [new("old")])
        outcomes = self.together(
            place, store, ("s", 0, "a"), ("s", 1, "b"), ("s", 1, "c"), ("t", 0, "xy"), ("u", 0, "yz")
        )
        late, taken, second, third, part = outcomes
        assert isinstance(late, ConcurrencyError)
        assert (late.expected, late.actual) == (0, 1)
        assert isinstance(second, ConcurrencyError), "the append before it in the group was first"
        assert (second.expected, second.actual) == (1, 2)
        assert isinstance(part, IdempotencyError)
        assert part.keys == ["y"]
        assert isinstance(taken, Appended)
        assert isinstance(third, Appended)
        assert keys(store.read_all()) == ["old", "0", "b", "x", "y"]

    def test_the_same_append_twice_in_a_group_is_recorded_once(
        self, place: str, store: EventStore
    ) -> None:
        """Two threads that do one task: both learn of the same rows."""
        one, two, turned = self.together(
            place, store, ("s", 0, "ab"), ("s", 0, "ab"), ("s", None, "ba")
        )
        assert (one.fresh, two.fresh) == (True, False)
        assert one.rows == two.rows == tuple(store.read("s"))
        assert isinstance(turned, IdempotencyError)

    def test_a_refused_append_of_a_group_fails_alone_and_a_full_disk_fails_all(
        self, place: str, store: EventStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing is recorded of those that failed, and the store goes on."""
        insert = store.database.insert
        error = store.database.engine.dialect.loaded_dbapi.OperationalError
        refused = {"b"}

        def choose(cursor: Any, statement: str, rows: Any) -> Any:
            if any(row[6] in refused for row in rows):
                raise error("no room")
            return insert(cursor, statement, rows)

        monkeypatch.setattr(store.database, "gone", lambda error: False)
        monkeypatch.setattr(store.database, "insert", choose)
        calls: list[Call] = [("s", 0, "a"), ("t", 0, "b"), ("u", 0, "cd")]
        good, bad, other = self.together(place, store, *calls)
        assert good.fresh
        assert other.fresh
        assert isinstance(bad, StoreUnavailableError)
        assert keys(store.read_all()) == ["0", "a", "c", "d"]
        refused |= set("efg")
        outcomes = self.together(place, store, ("s", 1, "e"), ("t", 0, "f"), ("u", 2, "g"))
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailableError] * 3
        refused.clear()
        assert all(done.fresh for done in self.together(place, store, ("t", 0, "b"), ("u", 2, "g")))
        assert keys(store.read_all()) == ["0", "a", "c", "d", "b", "g"]

    def test_many_keys_and_streams_are_looked_up_in_pages(self, place: str, store: EventStore) -> None:
        """A group may hold more keys than one statement takes."""
        odd = "".join(chr(0x4E00 + n) for n in range(700))
        calls: list[Call] = [('it\'s "s" {}', 0, odd), ("ü ? %s", 0, "?%'\"\\")]
        first = self.together(place, store, *calls)
        again = self.together(place, store, *calls)
        assert [done.fresh for done in first + again] == [True, True, False, False]
        assert [done.rows for done in first] == [done.rows for done in again]

    @pytest.mark.parametrize(
        ("fail", "survive"),
        [("append-began", "0"), ("append-inserted", "0"), ("append-committed", "0abcxyzde")],
    )
    def test_a_process_killed_in_a_group_leaves_all_of_its_appends_or_none(
        self, place: str, fail: str, survive: str
    ) -> None:
        """Each append is whole, and made again it changes nothing."""
        self.open(place).close()
        child = self.child(_GROUP, place, fail=f"kill:{fail}:2")
        _, errors = child.communicate("go\n", timeout=PATIENCE)
        assert child.returncode == -signal.SIGKILL, errors
        with closing(self.open(place)) as store:
            assert keys(store.read_all()) == list(survive)
            for stream, version, names in (("s", 0, "abc"), ("t", 0, "xyz"), ("s", 3, "de")):
                done = store.append(stream, version, [New(new(name).event, name) for name in names])
                assert done.fresh == (survive == "0")
            assert keys(store.read_all()) == list("0abcxyzde")
            assert_chained(store.read("s"))
