"""Trits as bytes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.codecs.packing import bits


def test_five_trits_are_the_digits_of_a_byte() -> None:
    """By hand: (1, −1, 0, 1, −1) + 1 = 2, 0, 1, 2, 0, so 2 + 9 + 54 = 65; filled up with zeros: 1s."""
    assert bits.pack_trits(torch.tensor([1, -1, 0, 1, -1])).tolist() == [65]
    assert bits.pack_trits(torch.tensor([-1])).tolist() == [0 + 3 + 9 + 27 + 81]


@given(st.lists(st.integers(-1, 1), max_size=23))
def test_trits_come_back(values: list[int]) -> None:
    """1.6 bits a trit, and exact."""
    packed = bits.pack_trits(torch.tensor(values, dtype=torch.int64))
    assert len(packed) == -(-len(values) // 5)
    assert bits.unpack_trits(packed, len(values)).tolist() == values


@pytest.mark.parametrize("value", [2, -2])
def test_what_is_no_trit_is_refused(value: int) -> None:
    """It would spill into its neighbours."""
    with pytest.raises(ConfigError, match="trit"):
        bits.pack_trits(torch.tensor([0, value]))


def test_bytes_that_nothing_packed_are_refused() -> None:
    """Other lengths, bytes above 242, trits behind the last one."""
    for raw, count in (([0], 6), ([243], 5), ([0], 1)):
        with pytest.raises(SourceError, match="trits"):
            bits.unpack_trits(torch.tensor(raw, dtype=torch.uint8), count)
