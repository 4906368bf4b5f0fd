"""Packing of codes into bytes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runs.errors import SourceError
from weights.codecs import packing
from weights.codecs.packing import pack_bits, pack_trits, unpack_bits, unpack_trits


def test_three_bits_lie_one_after_the_other_from_the_lowest_on() -> None:
    """By hand: 5 | 3 << 3 | 7 << 6 = 0b1_1101_1101; the ninth bit is the second byte's."""
    packed = pack_bits(torch.tensor([5, 3, 7]), 3)
    assert packed.tolist() == [0b11011101, 0b1]
    assert unpack_bits(packed, 3, 3).tolist() == [5, 3, 7]


def test_five_trits_are_the_digits_of_a_byte() -> None:
    """By hand: (1, −1, 0, 1, −1) + 1 = 2, 0, 1, 2, 0, so 2 + 9 + 54 = 65; filled up with zeros: 1s."""
    assert pack_trits(torch.tensor([1, -1, 0, 1, -1])).tolist() == [65]
    assert pack_trits(torch.tensor([-1])).tolist() == [0 + 3 + 9 + 27 + 81]


@given(st.integers(1, 16), st.integers(0, 2**32), st.integers(0, 70))
def test_every_width_and_length_comes_back(bits: int, seed: int, count: int) -> None:
    """What does not come back exactly is no packing."""
    codes = torch.from_numpy(np.random.default_rng(seed).integers(0, 2**bits, count))
    packed = pack_bits(codes, bits)
    assert len(packed) == packing.packed_bytes(count, bits)
    assert torch.equal(unpack_bits(packed, bits, count).long(), codes)


def test_chunks_join_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long vectors are packed in chunks: the bytes are those of one piece."""
    codes = torch.arange(1000) % 8
    whole = pack_bits(codes, 3)
    monkeypatch.setattr(packing, "CHUNK", 64)
    assert torch.equal(pack_bits(codes, 3), whole)
    assert torch.equal(unpack_bits(whole, 3, 1000).long(), codes)


@given(st.lists(st.integers(-1, 1), max_size=23))
def test_trits_come_back(trits: list[int]) -> None:
    """1.6 bits a trit, and exact."""
    packed = pack_trits(torch.tensor(trits, dtype=torch.int64))
    assert len(packed) == -(-len(trits) // 5)
    assert unpack_trits(packed, len(trits)).tolist() == trits


def test_codes_that_do_not_fit_are_refused() -> None:
    """They would spill into their neighbours."""
    for codes, bits in (([8], 3), ([-1], 3), ([0], 0), ([0], 17)):
        with pytest.raises(ValueError, match="bits"):
            pack_bits(torch.tensor(codes), bits)
    with pytest.raises(ValueError, match="trit"):
        pack_trits(torch.tensor([2]))


def test_bytes_that_nothing_packed_are_refused() -> None:
    """Other lengths, bits behind the last code, bytes above 242, trits behind the last one."""
    for raw, bits, count in (([0, 0], 3, 2), ([0], 3, 3), ([0b1000000], 3, 2)):
        with pytest.raises(SourceError, match="bits"):
            unpack_bits(torch.tensor(raw, dtype=torch.uint8), bits, count)
    for raw, count in (([0], 6), ([243], 5), ([0], 1)):
        with pytest.raises(SourceError, match="trits"):
            unpack_trits(torch.tensor(raw, dtype=torch.uint8), count)
