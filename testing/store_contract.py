"""Contract of every backend of the log. A backend's test module subclasses `StoreContract`.

    class TestSqliteStore(StoreContract):
        opener = "def open_log(place): ..."

        @pytest.fixture(scope="class")
        @classmethod
        def new_place(cls): ...

Nothing here knows which database is below. Processes are real: they run the same opener as source
text, meet at a log that none of them has opened yet, and are killed by SIGKILL.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from events import (
    ConcurrencyError,
    Context,
    Envelope,
    Event,
    EventsError,
    EventStore,
    IdempotencyError,
    New,
    Registry,
    canonical_json,
    chain,
)

ROOT = Path(__file__).parents[1]

REGISTRY = Registry()


@REGISTRY.event
class Counted(Event):
    type = "counted"
    n: int


@REGISTRY.event
class Noted(Event):
    type = "noted"
    value: Any


class Unwritable(Event):
    """Event that raises while it is being written: a stand-in for any error at that point."""

    type = "unwritable"

    def payload(self) -> str:
        raise ValueError("cannot be written")


def new(key: str, n: int = 0) -> New:
    """Return a counted event under a key."""
    return New(Counted(n=n), key)


def keys(rows: list[Envelope] | tuple[Envelope, ...]) -> list[str]:
    """Return the keys of rows, in order."""
    return [row.key for row in rows]


def assert_chained(rows: list[Envelope]) -> None:
    """Assert that rows of one whole stream have no gaps and that their hashes form a chain."""
    head = chain.GENESIS
    for version, row in enumerate(rows, start=1):
        assert row.version == version
        assert row.prev_hash == head
        assert row.hash == chain.link(row._asdict())
        head = row.hash


#: What a child process runs before its own part: the opener, an event, and a start signal, so that
#: all children begin together however long their imports took.
_CHILD = """
import sys
from events import ConcurrencyError, Event, New
exec(sys.argv[1])
place, name = sys.argv[2:4]

class Counted(Event):
    type = "counted"
    n: int

print("ready", flush=True)
sys.stdin.readline()
store = open_log(place)
"""

_CROWD = """
for n in range(6):
    while True:
        try:
            store.append("shared", store.version("shared"), [New(Counted(n=n), f"{name}/s/{n}")])
            break
        except ConcurrencyError:
            print("again", flush=True)
    store.append(f"own-{name}", n, [New(Counted(n=n), f"{name}/o/{n}")])
"""

_PAIRS = """
for n in range(4):
    store.append("s", 2 * n, [New(Counted(n=n), f"{n}/a"), New(Counted(n=n), f"{n}/b")])
"""

_FOREVER = """
import itertools
for n in itertools.count():
    store.append("s", n, [New(Counted(n=n), str(n))])
    print(n, flush=True)
"""


class StoreContract:
    #: Source text that defines `open_log(place: str) -> EventStore`. Text, because child processes
    #: run it too.
    opener: ClassVar[str]

    @pytest.fixture(scope="class")
    @classmethod
    def new_place(cls) -> Callable[[], str]:
        """Return a function that names places without a log; child processes can open them too."""
        raise NotImplementedError

    @classmethod
    def open(cls, place: str) -> EventStore:
        scope: dict[str, Any] = {}
        exec(cls.opener, scope)
        return scope["open_log"](place)

    @pytest.fixture
    def place(self, new_place: Callable[[], str]) -> str:
        return new_place()

    @pytest.fixture
    def store(self, place: str) -> Iterator[EventStore]:
        store = self.open(place)
        yield store
        store.close()

    @classmethod
    def child(
        cls, part: str, place: str, name: str = "child", fail: str = ""
    ) -> subprocess.Popen[str]:
        """Start a process that waits for a line on its input, opens the log and does its part."""
        return subprocess.Popen(
            [sys.executable, "-c", _CHILD + part, cls.opener, place, name],
            cwd=ROOT,
            env={**os.environ, "FORGE_FAILPOINTS": fail},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    # Versions and expected versions

    def test_versions_of_a_stream_are_1_2_3_without_gaps(self, store: EventStore) -> None:
        """A fold counts on it: a gap would mean that a row was lost."""
        store.append("s", 0, [new("a"), new("b")])
        store.append("other", 0, [new("x")])
        store.append("s", 2, [new("c")])
        assert [(row.key, row.version) for row in store.read("s")] == [("a", 1), ("b", 2), ("c", 3)]
        assert store.version("s") == 3

    def test_a_stream_that_is_not_there_has_version_0_and_no_rows(self, store: EventStore) -> None:
        """So that "the stream is new" needs no case of its own."""
        store.append("s", 0, [new("a")])
        assert store.version("nowhere") == 0
        assert store.read("nowhere") == []

    @pytest.mark.parametrize("expected", [0, 1, 3])
    def test_an_append_at_another_version_is_refused_and_nothing_is_recorded(
        self, store: EventStore, expected: int
    ) -> None:
        """A decision made on old facts must not be recorded."""
        store.append("s", 0, [new("a"), new("b")])
        with pytest.raises(ConcurrencyError) as caught:
            store.append("s", expected, [new("c"), new("d")])
        assert (caught.value.stream, caught.value.expected, caught.value.actual) == (
            "s",
            expected,
            2,
        )
        assert keys(store.read_all()) == ["a", "b"]

    def test_an_append_with_no_expected_version_goes_behind_whatever_is_there(
        self, store: EventStore
    ) -> None:
        """Results of tasks are facts in any order."""
        store.append("s", None, [new("a")])
        store.append("s", None, [new("b")])
        assert [(row.key, row.version) for row in store.read("s")] == [("a", 1), ("b", 2)]

    def test_appending_nothing_records_nothing(self, store: EventStore) -> None:
        """A decision without facts is no fact."""
        assert store.append("s", None, []).rows == ()
        assert store.read_all() == []

    # What a row holds

    def test_what_append_returns_is_what_read_returns(self, store: EventStore) -> None:
        """The caller may go on with the rows in hand."""
        done = store.append("s", 0, [new("a", 1), new("b", 2)])
        assert done.fresh
        assert list(done.rows) == store.read("s") == store.read_all()

    def test_a_row_says_who_appended_what_when_and_why(self, place: str) -> None:
        """The log is also the record of who did what."""
        store = self.open(place)
        store._clock = lambda: datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
        why = Context(actor="ada", correlation="run-7", causation="event-3")
        (row,) = store.append("s", 0, [new("a", 5)], why).rows
        store.close()
        assert (row.actor, row.correlation, row.causation) == ("ada", "run-7", "event-3")
        assert (row.type, row.schema, row.data) == ("counted", 1, '{"n":5}')
        assert row.recorded_at == "2024-02-29T12:30:00.000000+00:00"
        assert row.code_version

    def test_rows_are_there_after_the_log_is_closed_and_opened_again(self, place: str) -> None:
        """A log that forgets is no log."""
        store = self.open(place)
        rows = store.append("s", 0, [new("a")]).rows
        store.close()
        again = self.open(place)
        found = again.read_all()
        again.append("s", 1, [new("b")])
        assert_chained(again.read("s"))
        again.close()
        assert tuple(found) == rows

    @settings(
        max_examples=40,
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,
        ],
    )
    @given(
        value=st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
                    inner,
                    max_size=3,
                )
            ),
            max_leaves=8,
        )
    )
    def test_any_json_value_comes_back_bit_for_bit(self, store: EventStore, value: Any) -> None:
        """A replay must decide on the very numbers that the run decided on."""
        key = f"{store.version('s')}"
        store.append("s", None, [New(Noted(value=value), key)])
        row = store.read("s", after=int(key))[0]
        event = REGISTRY.load(row)
        assert isinstance(event, Noted)
        assert repr(event.value) == repr(json.loads(canonical_json(value)))
        assert event.value == value
        assert canonical_json(json.loads(row.data)) == row.data
        assert row.hash == chain.link(row._asdict())

    @pytest.mark.parametrize("value", [0.1, -0.0, 5e-324, 1.7976931348623157e308, 1 / 3, 1e16])
    def test_a_float_keeps_its_last_bit(self, store: EventStore, value: float) -> None:
        """Scores are compared for equality; -0.0 and the smallest float are the usual victims."""
        store.append("s", 0, [New(Noted(value=value), "a")])
        event = REGISTRY.load(store.read("s")[0])
        assert isinstance(event, Noted)
        assert event.value.hex() == value.hex()
        assert math.copysign(1, event.value) == math.copysign(1, value)

    # Keys

    @pytest.mark.parametrize("expected", [0, 2, 3, 17, None])
    def test_the_same_append_again_returns_the_recorded_rows_whatever_the_version(
        self, store: EventStore, expected: int | None
    ) -> None:
        """A worker that crashed after its commit does not know that it was recorded."""
        first = store.append("s", 0, [new("a", 1), new("b", 2)])
        store.append("s", 2, [new("c")])
        again = store.append("s", expected, [new("a", 99), new("b", 99)])
        assert first.fresh
        assert not again.fresh
        assert again.rows == first.rows
        assert keys(store.read_all()) == ["a", "b", "c"]

    @pytest.mark.parametrize(
        "again", [["a", "c"], ["c", "a"], ["b", "a"]], ids=["tail new", "head new", "other order"]
    )
    def test_an_append_that_overlaps_another_is_refused_and_nothing_is_recorded(
        self, store: EventStore, again: list[str]
    ) -> None:
        """Half of a decision recorded is a history that no program would have made."""
        store.append("s", 0, [new("a"), new("b")])
        with pytest.raises(IdempotencyError) as caught:
            store.append("s", 2, [new(key) for key in again])
        assert set(caught.value.keys) <= {"a", "b"}
        assert keys(store.read_all()) == ["a", "b"]

    def test_a_key_of_another_stream_is_refused(self, store: EventStore) -> None:
        """Else an event of one run would be taken for that of another."""
        store.append("s", 0, [new("a")])
        with pytest.raises(IdempotencyError):
            store.append("t", 0, [new("a")])
        assert store.version("t") == 0

    def test_one_key_twice_in_one_append_is_an_idempotency_error(self, store: EventStore) -> None:
        """A ConcurrencyError would send the caller into reading and trying again for ever."""
        with pytest.raises(EventsError) as caught:
            store.append("s", 0, [new("a"), new("a")])
        assert store.read_all() == [], "an append is all or nothing"
        assert isinstance(caught.value, IdempotencyError)

    def test_an_event_that_cannot_be_written_takes_its_whole_append_with_it(
        self, store: EventStore
    ) -> None:
        """All or nothing, also when the failure is ours; and the next append must not hang."""
        with pytest.raises(ValueError, match="cannot be written"):
            store.append("s", 0, [new("a"), New(Unwritable(), "b")])
        assert store.read_all() == []
        assert store.append("s", 0, [new("a")]).fresh

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
            return asked > 4

        tail = store.tail(poll=0.001, stop=stop)
        assert keys(tuple(itertools.islice(tail, 2))) == ["a", "b"]
        assert asked == 0, "what is there comes before the question whether to stop"
        assert keys(tuple(tail)) == ["c", "d"]

    def test_tail_starts_after_a_position_and_delivers_before_it_stops(
        self, store: EventStore
    ) -> None:
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

    def test_streams_gives_the_first_row_of_each_in_order_of_position(
        self, store: EventStore
    ) -> None:
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

    def test_each_row_holds_the_hash_of_the_row_before_in_its_stream(
        self, store: EventStore
    ) -> None:
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

    # Against a model

    @settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,
        ],
    )
    @given(
        appends=st.lists(
            st.tuples(
                st.sampled_from("xy"),
                st.sampled_from([None, 0, 0, 0, -1, 1]),
                st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True),
            ),
            max_size=10,
        )
    )
    def test_random_appends_leave_what_a_list_would(
        self, store: EventStore, appends: list[tuple[str, int | None, list[int]]]
    ) -> None:
        """The whole store in a dozen lines: a list of (stream, key), and three ways out."""
        start = max((row.position for row in store.read_all(limit=10**6)), default=0)
        log: list[tuple[str, str]] = []
        for letter, off, numbers in appends:
            stream = f"{letter}{start}"  # each example has streams and keys of its own
            wanted = [f"{start}/{n}" for n in numbers]
            version = sum(name == stream for name, _ in log)
            # Off by -1, 0 or 1 from the right version; None is None.
            expected = None if off is None else version + off
            taken = [(name, key) for name, key in log if key in wanted]
            if taken == [(stream, key) for key in wanted]:
                done = store.append(stream, expected, [new(key) for key in wanted])
                assert (done.fresh, keys(done.rows)) == (False, wanted)
            elif taken:
                with pytest.raises(IdempotencyError):
                    store.append(stream, expected, [new(key) for key in wanted])
            elif off:
                with pytest.raises(ConcurrencyError):
                    store.append(stream, expected, [new(key) for key in wanted])
            else:
                done = store.append(stream, expected, [new(key) for key in wanted])
                assert (done.fresh, keys(done.rows)) == (True, wanted)
                log += [(stream, key) for key in wanted]
        assert [(row.stream, row.key) for row in store.read_all(start, limit=10**6)] == log
        for letter in "xy":
            rows = store.read(f"{letter}{start}")
            assert keys(rows) == [key for name, key in log if name == f"{letter}{start}"]
            assert_chained(rows)

    # Several processes

    @pytest.fixture(scope="class")
    @classmethod
    def crowd(cls, new_place: Callable[[], str]) -> list[Envelope]:
        """Return the rows of a new log that three processes opened and appended to at once."""
        place = new_place()
        children = [cls.child(_CROWD, place, name) for name in "abc"]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        ends = [(*child.communicate(timeout=120), child.returncode) for child in children]
        assert [(errors, code) for _, errors, code in ends] == [("", 0)] * 3
        store = cls.open(place)
        rows = store.read_all()
        store.close()
        return rows

    def test_processes_that_append_to_one_stream_lose_nothing(self, crowd: list[Envelope]) -> None:
        """Each must see the other's append as a ConcurrencyError, never as "database is locked"."""
        rows = [row for row in crowd if row.stream == "shared"]
        assert sorted(keys(rows)) == sorted(f"{name}/s/{n}" for name in "abc" for n in range(6))
        assert_chained(rows)

    def test_processes_that_append_to_streams_of_their_own_do_not_meet(
        self, crowd: list[Envelope]
    ) -> None:
        """Two runs in one log never make each other try again."""
        streams = Counter(row.stream for row in crowd)
        assert streams == {"shared": 18, "own-a": 6, "own-b": 6, "own-c": 6}
        for name in "abc":
            rows = [row for row in crowd if row.stream == f"own-{name}"]
            assert keys(rows) == [f"{name}/o/{n}" for n in range(6)]
            assert_chained(rows)

    def test_positions_of_many_writers_are_unique_and_follow_the_versions(
        self, crowd: list[Envelope]
    ) -> None:
        """A reader that goes by position must see each stream in its own order."""
        assert len({row.position for row in crowd}) == len(crowd) == 36
        for stream in {row.stream for row in crowd}:
            versions = [row.version for row in crowd if row.stream == stream]
            assert versions == sorted(versions)

    @pytest.mark.parametrize(
        ("fail", "survive"),
        [
            ("kill:append-began:3", 4),
            ("kill:append-inserted:3", 4),
            ("kill:append-committed:3", 6),
        ],
    )
    def test_a_process_killed_in_an_append_leaves_all_of_it_or_nothing(
        self, place: str, fail: str, survive: int
    ) -> None:
        """A crash is the normal case: the log opens again, and the same append can be made again."""
        child = self.child(_PAIRS, place, fail=fail)
        _, errors = child.communicate("go\n", timeout=120)
        assert child.returncode == -signal.SIGKILL, errors
        store = self.open(place)
        rows = store.read("s")
        again = store.append("s", 4, [new("2/a"), new("2/b")])
        after = store.read("s")
        store.close()
        assert keys(rows) == ["0/a", "0/b", "1/a", "1/b", "2/a", "2/b"][:survive]
        assert again.fresh == (survive == 4)
        assert keys(after) == ["0/a", "0/b", "1/a", "1/b", "2/a", "2/b"]
        assert_chained(after)

    def test_what_an_append_returned_for_outlives_a_kill_at_any_moment(self, place: str) -> None:
        """Durable when it returns: a caller that was told "recorded" may act on it."""
        child = self.child(_FOREVER, place)
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("go\n")
        child.stdin.flush()
        for _ in range(15):
            child.stdout.readline()
        child.kill()
        said = child.stdout.read()  # communicate() would lose what readline() has read ahead
        _, errors = child.communicate(timeout=120)
        assert errors == ""
        last = max([13, *(int(line) for line in re.findall(r"^(\d+)\n", said, re.M))])
        store = self.open(place)
        rows = store.read("s")
        store.close()
        assert len(rows) in (last + 1, last + 2)
        assert_chained(rows)
