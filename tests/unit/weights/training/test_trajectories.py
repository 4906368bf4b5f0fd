"""Trajectories as a stream of token ids: what is written is read again, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.runs.errors import DataError
from agent_forge.weights.training.windows import Trajectory, pack, unpack

IDS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5).map(
    lambda ids: np.asarray(ids, np.int32)
)
TRAJECTORIES = st.lists(st.builds(Trajectory, st.integers(0, 9), IDS, IDS, IDS), max_size=4)


@given(TRAJECTORIES)
def test_what_is_packed_is_unpacked(given_: list[Trajectory]) -> None:
    stream = pack(given_)
    assert stream.dtype == np.int32
    found = unpack(stream)
    assert [one.prompt for one in found] == [one.prompt for one in given_]
    for mine, own in zip(found, given_, strict=True):
        for part in ("prompted", "plain", "reply"):
            assert getattr(mine, part).tolist() == getattr(own, part).tolist()
        assert mine.length == max(len(own.prompted), len(own.plain)) + len(own.reply)


@pytest.mark.parametrize(
    "stream",
    [
        [0, 1],  # a cut header
        [0, 1, 1, 2, 7, 7, 7],  # a reply of one token, and two were said
        [0, 0, 1, 1, 7, 7],  # an empty beginning
        [0, 1, 1, 0, 7, 7],  # an empty reply
        [-1, 1, 1, 1, 7, 7, 7],
        [0, 1, 1, 1, 7, 7, 7, 0],  # something after the last
        [0, 1, -1, 1, 7],
    ],
)
def test_another_stream_is_refused(stream: list[int]) -> None:
    with pytest.raises(DataError, match="holds no trajectories"):
        unpack(np.asarray(stream, np.int32))


def test_numbers_of_tokens_that_would_overflow_are_refused() -> None:
    most = 2**31 - 1
    with pytest.raises(DataError, match="holds no trajectories"):
        unpack(np.asarray([0, most, most, most, 1, 2, 3], np.int32))
