"""Integers of a few bits as bytes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.codecs.packing import bits


def test_the_first_value_takes_the_lowest_bits() -> None:
    """5, 3 and 6 of 3 bits: 0b110_011_101 is 413, whose bytes are 157 and 1."""
    assert bits.pack(torch.tensor([5, 3, 6]), 3).tolist() == [157, 1]
    assert bits.unpack(torch.tensor([157, 1], dtype=torch.uint8), 3, 3).tolist() == [5, 3, 6]


@given(st.integers(1, 32), st.data())
def test_what_was_packed_is_unpacked(width: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, 2**width - 1), max_size=40))
    packed = bits.pack(torch.tensor(values, dtype=torch.int64), width)
    assert packed.dtype == torch.uint8
    assert packed.numel() == bits.packed_bytes(len(values), width)
    assert bits.unpack(packed, width, len(values)).tolist() == values


@pytest.mark.parametrize(
    ("width", "dtype"), [(8, torch.uint8), (8, torch.int32), (31, torch.int32), (32, torch.int64)]
)
def test_values_of_a_narrow_dtype_come_back_in_it(width: int, dtype: torch.dtype) -> None:
    """Packed and unpacked in as much memory as the values take, up to the largest one."""
    values = torch.tensor([2**width - 1, 0, 1, 2 ** (width - 1)], dtype=torch.int64).to(dtype)
    packed = bits.pack(values, width)
    assert torch.equal(packed, bits.pack(values.long(), width))
    found = bits.unpack(packed, width, 4, dtype)
    assert found.dtype == dtype
    assert torch.equal(found, values)


def test_parts_join_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long streams are expanded in parts of a fixed number of values."""
    values = torch.arange(1000) * 7919 % 2048
    packed = bits.pack(values, 11)
    monkeypatch.setattr(bits, "_PART", 16)
    assert torch.equal(bits.pack(values, 11), packed)
    assert torch.equal(bits.unpack(packed, 11, 1000), values)


@pytest.mark.parametrize(("value", "width"), [(8, 3), (256, 8), (-1, 3), (0, 0), (0, 33)])
def test_what_does_not_fit_is_refused(value: int, width: int) -> None:
    with pytest.raises(ConfigError):
        bits.pack(torch.tensor([value]), width)


def test_bytes_of_another_number_of_values_are_refused() -> None:
    """Also set bits beyond the last value: one content has one form."""
    packed = bits.pack(torch.tensor([5, 3, 6]), 3)
    with pytest.raises(SourceError, match="4 values of 5 bits are 3 bytes"):
        bits.unpack(packed, 5, 4)
    for raw, count in (([0, 0], 2), ([0], 3)):
        with pytest.raises(SourceError, match=f"{count} values of 3 bits"):
            bits.unpack(torch.tensor(raw, dtype=torch.uint8), 3, count)
    with pytest.raises(SourceError, match="beyond the last"):
        bits.unpack(torch.tensor([157, 3], dtype=torch.uint8), 3, 3)
    with pytest.raises(SourceError, match=r"torch\.int64"):
        bits.unpack(packed.to(torch.int64), 3, 3)
