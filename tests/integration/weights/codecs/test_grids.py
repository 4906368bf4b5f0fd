"""Codecs on grids: rounding to nearest, and GPTQ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.runs.errors import ConfigError, NotFiniteError, SourceError, UnknownAlgorithmError
from agent_forge.weights import codecs
from agent_forge.weights.codecs import Coded
from testing.models.layers import gram, matrix, weighted_error


def there_and_back(name: str, weights: torch.Tensor, h: Any = None, **params: Any):
    coded = codecs.encode(name, weights, params, h)
    again = codecs.encode(name, weights, params, h)
    assert coded.header == again.header
    assert all(torch.equal(part, again.parts[n]) for n, part in coded.parts.items())
    return coded, codecs.decode(name, coded)


def test_two_bits_by_hand() -> None:
    """±3 and ±1 are the four levels of a grid that reaches 3: lowest −3, scale 2."""
    weights = torch.tensor([[3.0, 1.2, -0.9, -2.9]])
    coded, found = there_and_back("rtn@1", weights, bits=2, group=0, search=False)
    assert found.tolist() == [[3.0, 1.0, -1.0, -3.0]]
    assert coded.parts["codes"].tolist() == [3 | 2 << 2 | 1 << 4 | 0 << 6]
    assert coded.parts["scale"].tolist() == [[1.0]]  # of the matrix over 2 ** 1
    assert coded.header == {"bits": 2, "exponent": 1, "group": 4}


def test_an_asymmetric_grid_reaches_from_the_smallest_to_the_largest() -> None:
    """1, 2, 3, 4 are levels of 2 bits; a symmetric grid wastes half of its levels on them."""
    weights = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    _, found = there_and_back("rtn@1", weights, bits=2, symmetric=False, search=False)
    assert torch.equal(found, weights)


@given(
    st.sampled_from([2, 3, 4, 8]),
    st.integers(0, 9),
    st.booleans(),
    st.integers(1, 5),
    st.integers(1, 20),
)
def test_a_weight_is_at_most_half_a_level_away(
    bits: int, group: int, symmetric: bool, rows: int, columns: int
) -> None:
    """Whole span, any shape and group: the error bound of rounding, with the float16 scale's own."""
    weights = matrix(rows, columns, seed=rows * columns)
    coded, found = there_and_back(
        "rtn@1", weights, bits=bits, group=group, symmetric=symmetric, search=False
    )
    wide = group or columns
    for start in range(0, columns, wide):
        part = weights[:, start : start + wide]
        span = 2 * part.abs().amax(1) if symmetric else part.amax(1) - part.amin(1)
        bound = span / (2**bits - 1) / 2 + part.abs().amax(1) / 1000 + 2.0**-24 * 2**bits
        assert ((found[:, start : start + wide] - part).abs() <= bound[:, None]).all()
    assert coded.parts["codes"].numel() == -(-rows * columns * bits // 8)


def test_a_shrunk_grid_errs_no_more() -> None:
    """Two bits of a Gaussian: near the .343 of the best four levels (Max 1960, table I)."""
    weights = matrix(64, 512)
    _, whole = there_and_back("rtn@1", weights, bits=2, search=False)
    _, shrunk = there_and_back("rtn@1", weights, bits=2)
    relative = [float((found - weights).norm() / weights.norm()) for found in (whole, shrunk)]
    assert relative[0] > 0.45
    assert 0.31 < relative[1] < 0.36


def test_rows_of_zeros_and_the_smallest_weights_come_back() -> None:
    """A scale of zero divides nothing; sizes that float16 does not have are a power of two apart."""
    for size in (1e-7, 1e-38, 1e30):
        weights = torch.tensor([[0.0, 0.0], [size, -size]])
        _, found = there_and_back("rtn@1", weights)
        assert found[0].tolist() == [0.0, 0.0]
        assert torch.allclose(found[1], weights[1], rtol=1e-3, atol=0.0)


@pytest.mark.parametrize("bits", [2, 3, 4])
@pytest.mark.parametrize("symmetric", [True, False])
def test_gptq_errs_less_than_rounding_in_what_the_layer_puts_out(bits: int, symmetric: bool) -> None:
    """Same bytes, under 0.7 of the error."""
    weights, h = matrix(48, 96), gram(96)
    params = {"bits": bits, "symmetric": symmetric, "group": 32}
    plain, rounded = there_and_back("rtn@1", weights, h, **params)
    coded, found = there_and_back("gptq@1", weights, h, **params)
    assert coded.bytes == plain.bytes
    assert weighted_error(found - weights, h) < 0.7 * weighted_error(rounded - weights, h)


@pytest.mark.parametrize("group", [0, 7, 64, 200])
def test_gptq_takes_any_group(group: int) -> None:
    """Groups that do not divide the columns, one group, groups longer than a block of columns."""
    weights, h = matrix(3, 150), gram(150)
    coded, found = there_and_back("gptq@1", weights, h, group=group)
    assert found.shape == weights.shape
    wide = group or 150
    assert coded.parts["scale"].shape == (3, -(-150 // min(wide, 150)))


def test_gptq_without_a_gram_says_so() -> None:
    """It would be rounding to nearest under another name."""
    with pytest.raises(ConfigError, match="gram"):
        codecs.encode("gptq@1", matrix(2, 4), {})


def test_wrong_matrices_and_grams_are_refused() -> None:
    """Before any work, naming what is wrong."""
    good = matrix(2, 4)
    for wrong, h, said in (
        (good.double(), None, "float32 matrix"),
        (good[0], None, "float32 matrix"),
        (good, gram(3), r"float64 \[4, 4\]"),
        (good, gram(4).float(), "float64"),
    ):
        with pytest.raises(ConfigError, match=said):
            codecs.encode("rtn@1", wrong, {}, h)
    for wrong, h, said in (
        (good / 0.0, None, "the matrix has -?inf at row 0, column 0; 8 of 8 values"),
        (good, gram(4) * float("nan"), "the gram has nan at row 0, column 0; 16 of 16 values"),
    ):
        with pytest.raises(NotFiniteError, match=said):
            codecs.encode("rtn@1", wrong, {}, h)
    for params in ({"bits": 5}, {"group": -1}, {"typo": 1}):
        with pytest.raises(ConfigError, match="rtn@1"):
            codecs.encode("rtn@1", good, params)
    with pytest.raises(UnknownAlgorithmError, match="rtn@9"):
        codecs.encode("rtn@9", good, {})


def test_damaged_parts_are_refused() -> None:
    """A codec trusts no byte that it is given."""
    coded = codecs.encode("rtn@1", matrix(4, 8), {"group": 4})
    parts, header = coded.parts, coded.header
    for wrong in (
        replace(coded, parts={k: v for k, v in parts.items() if k != "scale"}),
        replace(coded, parts={**parts, "scale": parts["scale"].float()}),
        replace(coded, parts={**parts, "codes": parts["codes"][1:]}),
        replace(coded, header={**header, "bits": 5}),
        replace(coded, header={**header, "group": 0}),
        replace(coded, header={}),
        replace(coded, header={**header, "exponent": 500}),
        replace(coded, parts={**parts, "scale": parts["scale"] / 0}),
        Coded((4, 9), header, parts),
    ):
        with pytest.raises(SourceError):
            codecs.decode("rtn@1", wrong)
