"""Contract of the log: reading, names of streams, and the hash chain."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime

import pytest

from agent_forge.events import Event, EventStore, New, chain
from testing.stores.backend import Backend
from testing.stores.example_events import assert_chained, keys, new


class Reads(Backend):
    """Reads of rows and streams, and hashes that tell a changed row."""

    # Reading

    def test_read_gives_the_rows_after_a_version(self, store: EventStore) -> None:
        """A worker folds only what is new."""
        store.append("s", 0, [new("a"), new("b"), new("c")])
        assert keys(store.read("s", after=1)) == ["b", "c"]
        assert store.read("s", after=3) == []

    def test_read_all_goes_through_the_whole_log_by_position(self, store: EventStore) -> None:
        """Paging by the last position seen must neither skip nor repeat a row."""
        for key in "abcde":
            store.append("st"[ord(key) % 2], None, [new(key)])
        pages: list[list[str]] = []
        after = 0
        while rows := store.read_all(after, limit=2):
            pages.append(keys(rows))
            after = rows[-1].position
        assert pages == [["a", "b"], ["c", "d"], ["e"]]
        positions = [row.position for row in store.read_all()]
        assert positions == sorted(set(positions))

    def test_tail_gives_what_is_there_then_what_comes_and_stops(self, store: EventStore) -> None:
        """It is how a dashboard follows a run, and it must end when it is asked to."""
        store.append("s", 0, [new("a"), new("b")])
        asked = 0

        def stop() -> bool:
            nonlocal asked
            asked += 1
            if asked == 1:
                store.append("s", None, [new("c")])
            if asked == 3:
                store.append("t", None, [new("d")])
            if asked == 5:
                store.append("s", None, [new("e")])
            return asked > 4

        tail = store.tail(poll=0.001, stop=stop)
        assert keys(tuple(itertools.islice(tail, 2))) == ["a", "b"]
        assert asked == 0, "what is there comes before the question whether to stop"
        assert keys(tuple(tail)) == ["c", "d", "e"], "also what came before it was asked to stop"

    def test_tail_starts_after_a_position_and_delivers_before_it_stops(self, store: EventStore) -> None:
        """A reader that comes back must not see old rows again, nor lose the last ones."""
        first, *_ = store.append("s", 0, [new("a"), new("b"), new("c")]).rows
        rows = store.tail(after=first.position, poll=0.001, stop=lambda: True)
        assert keys(tuple(rows)) == ["b", "c"]

    def test_a_reader_sees_nothing_of_an_append_that_is_under_way(self, place: str) -> None:
        """A reader of half a decision would decide on it; and readers need not wait."""
        writer, reader = self.open(place), self.open(place)
        writer.append("s", 0, [new("a")])
        seen: list[list[str]] = []

        class Peeking(Event):
            type = "peeking"

            def payload(self) -> str:
                seen.append(keys(reader.read_all()))
                return "{}"

        writer.append("s", 1, [new("b"), New(Peeking(), "c"), new("d")])
        seen.append(keys(reader.read_all()))
        writer.close()
        reader.close()
        assert seen == [["a"], ["a", "b", "c", "d"]]

    # Names of streams

    def test_streams_gives_the_first_row_of_each_in_order_of_position(self, store: EventStore) -> None:
        """It is the list of runs, oldest first."""
        store.append("run-b", 0, [new("b1"), new("b2")])
        store.append("run-a", 0, [new("a1")])
        store.append("other", 0, [new("o1")])
        store.append("run-b", 2, [new("b3")])
        assert keys(store.streams()) == ["b1", "a1", "o1"]
        assert keys(store.streams("run-")) == ["b1", "a1"]
        assert store.streams("nowhere") == []

    @pytest.mark.parametrize("prefix", ["a%", "a_", "a\\", "a/", "a'", "a[", "a*", "é"])
    def test_a_prefix_is_text_and_not_a_pattern(self, store: EventStore, prefix: str) -> None:
        """A run named 50%_a must not be listed as, or resumed as, another."""
        for name in ("ab", "abc", prefix, prefix + "c"):
            store.append(name, 0, [new(f"key of {name}")])
        assert [row.stream for row in store.streams(prefix)] == [prefix, prefix + "c"]

    def test_a_prefix_tells_upper_from_lower_case(self, store: EventStore) -> None:
        """Names of streams are compared exactly everywhere else."""
        for name in ("run-a", "RUN-b", "Run-c"):
            store.append(name, 0, [new(name)])
        assert [row.stream for row in store.streams("run-")] == ["run-a"]

    def test_names_of_streams_are_compared_exactly(self, store: EventStore) -> None:
        """A collation that ignores case, accents or trailing spaces would mix two runs."""
        names = ["run", "RUN", "run ", "rün", "ru\u0308n", "run/1", "run\n"]
        for name in names:
            store.append(name, 0, [new(name)])
        assert [store.version(name) for name in names] == [1] * len(names)

    # The chain

    def test_each_row_holds_the_hash_of_the_row_before_in_its_stream(self, store: EventStore) -> None:
        """Tamper evidence: a changed row breaks the chain from there on."""
        for n in range(3):
            store.append("s", None, [new(f"s{n}a"), new(f"s{n}b")])
            store.append("t", None, [new(f"t{n}")])
        assert len(store.read("s")) == 6
        assert_chained(store.read("s"))
        assert_chained(store.read("t"))

    def test_a_stream_keeps_its_hashes_in_another_database(
        self, store: EventStore, new_place: Callable[[], str]
    ) -> None:
        """The position is not covered, so a stream can be moved with its chain."""
        (row,) = store.append("s", 0, [new("a")]).rows
        other = self.open(new_place())
        other.append("before", 0, [new("x")])
        other._clock = lambda: datetime.fromisoformat(row.recorded_at)
        (moved,) = other.append("s", 0, [new("a")]).rows
        other.close()
        assert moved.position != row.position
        assert chain.link({**moved._asdict(), "event_id": row.event_id}) == row.hash
