"""Parts of long tasks: every piece is recorded once, however devices work, and cuts stay."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_forge.runs.kinds.decide import (
    MOST_PARTS,
    SECONDS,
    Start,
    TaskPart,
    open_parts,
    part_key,
    validate_part,
    whole,
    whole_key,
)
from agent_forge.runs.kinds.state import COMMON, State
from agent_forge.runs.record.events import PartDone


class AnyState(State):
    handlers = COMMON


def done(begin: int, end: int, of: int, seconds: float = 1.0) -> PartDone:
    return PartDone(task="t", begin=begin, end=end, of=of, digest="0" * 64, seconds=seconds)


def test_nothing_is_open_before_the_first_part_and_after_the_last() -> None:
    assert open_parts({}) == []
    assert open_parts({0: done(0, 5, 5)}) == []


def test_the_rest_is_cut_by_the_pace_of_the_first_part() -> None:
    """Ten pieces in ten seconds: parts of as many pieces as `SECONDS` has seconds."""
    size = int(SECONDS)
    assert open_parts({0: done(0, 10, 10 + 2 * size + 1, 10.0)}) == [
        (10, 10 + size),
        (10 + size, 10 + 2 * size),
        (10 + 2 * size, 10 + 2 * size + 1),
    ]


def test_a_piece_that_takes_longer_than_a_part_is_a_part() -> None:
    assert open_parts({0: done(0, 1, 3, 10 * SECONDS)}) == [(1, 2), (2, 3)]


def test_few_parts_are_open_at_once() -> None:
    assert len(open_parts({0: done(0, 1, 10_000, SECONDS)})) == MOST_PARTS


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_piece_is_recorded_once_and_cuts_stay(data: st.DataObject) -> None:
    """Devices take open parts, stop where they like, and record in any order; in two stages."""
    parts: dict[int, PartDone] = {}
    known = 0
    for _ in range(2):
        count = data.draw(st.integers(1, 6))
        first = data.draw(st.integers(1, count))
        pace = data.draw(st.floats(0.1, 3 * SECONDS))
        parts[known] = done(known, known + first, known + count, pace * first)
        known += count
        held: dict[int, int] = {}
        while opened := dict(open_parts(parts)):
            assert held.items() <= opened.items(), "a part that a device works on was cut anew"
            for begin in [b for b in opened if b not in held][: data.draw(st.integers(not held, 3))]:
                held[begin] = opened[begin]
            begin = data.draw(st.sampled_from(sorted(held)))
            end = data.draw(st.integers(begin + 1, held.pop(begin)))
            parts[begin] = done(begin, end, known)
    pieces = [n for part in parts.values() for n in range(part.begin, part.end)]
    assert sorted(pieces) == list(range(known))


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        (done(10, 12, 20), False),
        (done(10, 20, 20), False),
        (done(11, 12, 20), True),  # another begin
        (done(10, 12, 21), True),  # other pieces are known
        (done(10, 10, 20), True),  # none was done
        (done(0, 5, 20), True),
    ],
)
def test_a_part_is_checked_against_the_one_that_was_asked_for(part: PartDone, wrong: bool) -> None:
    state = AnyState()
    state.take(done(0, 10, 20, 1e-9))
    assert open_parts(state.parts["t"]) == [(10, 20)]
    assert bool(validate_part(state, TaskPart(Start(), 10, 20), part)) is wrong


@pytest.mark.parametrize(
    ("part", "wrong"), [(done(0, 3, 5), False), (done(1, 3, 5), True), (done(0, 6, 5), True)]
)
def test_a_first_part_begins_with_the_first_piece(part: PartDone, wrong: bool) -> None:
    assert bool(validate_part(State(), Start(), part)) is wrong


def test_a_later_stage_begins_after_the_pieces_that_are_known() -> None:
    state = AnyState()
    state.take(done(0, 5, 5))
    assert validate_part(state, Start(), done(5, 6, 9)) is None
    assert validate_part(state, Start(), done(4, 6, 9)) is not None


def test_a_part_has_the_key_of_its_task_and_its_first_piece() -> None:
    part = TaskPart(Start(), 3, 5)
    assert part.key == part_key("start", 3) == "start/part/3"
    assert whole_key(part.key) == whole_key("start") == "start"
    assert whole(part) == Start()
