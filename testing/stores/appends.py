"""Contract of the log: what an append records, refuses and repeats."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_forge.events import (
    Cause,
    ConcurrencyError,
    EventsError,
    EventStore,
    IdempotencyError,
    New,
    canonical_json,
    chain,
)
from testing.stores.backend import Backend
from testing.stores.example_events import REGISTRY, Noted, Unwritable, assert_chained, keys, new


class Appends(Backend):
    """Versions, rows, keys, and random appends against a model."""

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
        assert (caught.value.stream, caught.value.expected, caught.value.actual) == ("s", expected, 2)
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
        why = Cause(actor="ada", correlation="run-7", causation="event-3")
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
            HealthCheck.too_slow,
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

    # Against a model

    @settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=[
            HealthCheck.too_slow,
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
