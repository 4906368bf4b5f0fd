"""Two bits a weight: exact, in our order of bytes and in that of transformers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.ternary import packing, quantiser


def drawn(rows: int, columns: int, seed: int) -> torch.Tensor:
    """Trits [rows, columns]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-1, 2, (rows, columns), generator=generator, dtype=torch.int8)


def test_four_columns_are_a_byte() -> None:
    """(−1, 0, 1, 1) is 0 + 1·4 + 2·16 + 2·64 = 164; the fifth alone, 1, is 2."""
    trits = torch.tensor([[-1, 0, 1, 1, 1]], dtype=torch.int8)
    assert packing.neighbours(trits).tolist() == [[164, 2]]


@given(rows=st.integers(1, 9), columns=st.integers(1, 9), seed=st.integers(0, 99))
def test_unpacked_trits_are_those_that_were_packed(rows: int, columns: int, seed: int) -> None:
    trits = drawn(rows, columns, seed)
    assert torch.equal(packing.from_neighbours(packing.neighbours(trits), columns), trits)


def test_strided_bytes_are_those_of_transformers() -> None:
    from transformers.integrations.bitnet import pack_weights  # imports torch's compiler: seconds

    trits = drawn(12, 5, 1)
    assert torch.equal(packing.strided(trits), pack_weights(trits.clone()))


@pytest.mark.parametrize("group", [0, 3])
def test_a_container_gives_back_the_same_bits(group: int) -> None:
    """Matrices of 2 bits a weight and scales; all else as it is."""
    weight = quantiser.quantise(torch.randn(8, 6, generator=torch.Generator().manual_seed(0)), group)
    weights = {"a.weight": weight, "a.bias": torch.randn(8)}
    packed = packing.pack(weights, ["a.weight"], group)
    assert sorted(packed) == ["a.bias", "a.weight.scale", "a.weight.trits"]
    assert packing.bytes_of(packed) == 8 * 2 + 4 * (16 if group else 1) + 4 * 8
    assert packing.packed_bytes(weights, ["a.weight"], group) == packing.bytes_of(packed)
    back = packing.unpack(packed, {"a.weight": 6})
    assert {name: t.dtype for name, t in back.items()} == dict.fromkeys(weights, torch.float32)
    assert all(torch.equal(back[name], weights[name]) for name in weights)


def test_damaged_or_incomplete_containers_are_refused() -> None:
    packed = packing.pack({"w": torch.tensor([[1.0, 0.0, -1.0, 1.0]])}, ["w"])
    wrong = packed | {"w.trits": torch.tensor([[255]], dtype=torch.uint8)}
    with pytest.raises(SourceError, match="value 3"):
        packing.unpack(wrong, {"w": 4})
    with pytest.raises(SourceError, match="another shape"):
        packing.unpack(packed, {"w": 9})
    with pytest.raises(SourceError, match="no scale or width of it"):
        packing.unpack({"w.trits": packed["w.trits"]}, {"w": 4})
    with pytest.raises(ConfigError, match="5 rows are no multiple"):
        packing.strided(drawn(5, 4, 0))
