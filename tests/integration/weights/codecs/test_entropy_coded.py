"""Entropy-coded uniform quantisation, and the range coder below it."""

from __future__ import annotations

import contextlib
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.runs.errors import ConfigError, SourceError, UnavailableError
from agent_forge.weights import codecs
from agent_forge.weights.codecs import Coded
from agent_forge.weights.codecs.packing import range_coder
from testing.models.layers import gram, matrix, weighted_error


def entropy(values: torch.Tensor) -> float:
    """Return the bits of a value by the frequencies of all."""
    share = torch.unique(values, return_counts=True)[1].double() / values.numel()
    return float(-(share * share.log2()).sum())


@given(st.lists(st.integers(-(2**31) + 1, 2**31 - 1) | st.integers(-4, 4), max_size=60))
def test_any_whole_numbers_come_back(numbers: list[int]) -> None:
    """Rare and far values are escaped, equal ones need no words at all."""
    values = torch.tensor(numbers, dtype=torch.int64)
    low, parts = range_coder.encode(values)
    again = range_coder.encode(values)
    assert low == again[0]
    assert all(torch.equal(part, again[1][name]) for name, part in parts.items())
    assert torch.equal(range_coder.decode(low, parts, len(values)), values)


def test_the_words_are_the_same_for_ever() -> None:
    """A file of today is read by every later version: recorded once, with constriction 0.5.0."""
    values = torch.tensor([0, 0, 1, -1, 0, 2, 0, 0, 1, -1, 0, 2, 900, 0])
    low, parts = range_coder.encode(values)
    assert low == -1
    assert parts["table"].tolist() == [8, 22, 8, 8, 0]  # 2, 7, 2, 2 and one escape, 8 log2
    assert parts["words"].tolist() == [140, 155, 108, 95]
    assert parts["escaped"].tolist() == [900]


def test_bits_are_the_entropy_and_little_more() -> None:
    """Within 0.5 % of what the frequencies allow, table included, on 100,000 values."""
    values = torch.from_numpy(np.rint(np.random.default_rng(0).standard_normal(100_000) * 1.2))
    _, parts = range_coder.encode(values.long())
    coded = sum(part.numel() * part.element_size() for part in parts.values())
    assert entropy(values) < coded * 8 / 100_000 < 1.005 * entropy(values)


def test_few_bytes_never_stand_for_memory() -> None:
    """A million equal values take 124 bytes of zeros; a reader asks for no more than these allow."""
    for values in (torch.zeros(1_000_000), torch.arange(1_000_000) == 5):
        low, parts = range_coder.encode(values.long())
        assert len(parts["words"]) == 124
        assert torch.equal(range_coder.decode(low, parts, 1_000_000), values.long())
        with pytest.raises(SourceError, match="too few"):
            range_coder.decode(low, parts, 2_000_000)


def test_a_table_has_a_bound() -> None:
    """Beyond it values are escaped; nothing is lost."""
    values = torch.arange(-5000, 5000).repeat(2)
    low, parts = range_coder.encode(values)
    assert parts["table"].numel() == range_coder.MOST_SYMBOLS + 1
    assert torch.equal(range_coder.decode(low, parts, len(values)), values)


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is no part of the core."""
    monkeypatch.setitem(sys.modules, "constriction", None)
    with pytest.raises(UnavailableError, match=r"pip install 'constriction"):
        range_coder.encode(torch.tensor([1, 2, 2, 1]))


@given(st.integers(0, 3), st.integers(0, 10**6), st.integers(0, 255))
def test_altered_words_are_refused_or_decode_to_something_else(where: int, at: int, to: int) -> None:
    """A coder's bytes have no check of their own: never a crash, a hang or an unknown error."""
    values = torch.from_numpy(np.rint(np.random.default_rng(1).standard_normal(300))).long()
    values[7] = 500
    low, parts = range_coder.encode(values)
    names = ["words", "table", "escaped", "words"]
    raw = parts[names[where]].clone().view(torch.uint8)
    if where == 3:
        raw = raw[: 4 * (at % (len(raw) // 4))]
    else:
        raw[at % len(raw)] = to
    parts[names[where]] = raw.view(parts[names[where]].dtype)
    with contextlib.suppress(SourceError):
        assert len(range_coder.decode(low, parts, 300)) == 300


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize("step", [0.02, 0.5, 1.5, 60.0])
def test_weights_are_whole_multiples_of_their_steps(rows: bool, feedback: bool, step: float) -> None:
    """Decoding gives the rounded values: without feedback the multiple below or above."""
    weights, h = matrix(12, 40), gram(40)
    params = {"step": step, "rows": rows, "feedback": feedback}
    coded, again = (codecs.encode("uniform@1", weights, params, h) for _ in range(2))
    assert all(torch.equal(part, again.parts[n]) for n, part in coded.parts.items())
    found = codecs.decode("uniform@1", coded)
    roots = weights.square().mean(1 if rows else (0, 1)).sqrt().expand(12) * step
    if not feedback:
        assert ((found - weights).abs() <= roots[:, None] * 0.6 * 2 ** (1 / 16) + 1e-6).all()
    of_step = found / found.abs().where(found != 0, math.inf).amin(1, keepdim=True)
    if step == 0.5 and rows:  # each row holds its step itself
        assert torch.allclose(of_step, of_step.round(), atol=1e-3)


def of_two_bits(weights: torch.Tensor, h: torch.Tensor, feedback: bool) -> Coded:
    """Return the matrix coded by the smallest step found that takes two bits a weight."""
    low, high = 2.0**-9, 2.0**5
    for _ in range(12):
        step = (low * high) ** 0.5
        coded = codecs.encode("uniform@1", weights, {"step": step, "feedback": feedback}, h)
        low, high = (low, step) if coded.bytes * 8 <= 2 * weights.numel() else (step, high)
    return codecs.encode("uniform@1", weights, {"step": high, "feedback": feedback}, h)


def test_feedback_errs_less_at_equal_bits() -> None:
    """The codec's whole point, at two bits."""
    weights, h = matrix(64, 128), gram(128)
    errors = []
    for feedback in (False, True):
        coded = of_two_bits(weights, h, feedback)
        assert 1.97 < coded.bytes * 8 / weights.numel() <= 2.0
        errors.append(weighted_error(codecs.decode("uniform@1", coded) - weights, h))
    assert errors[1] < 0.7 * errors[0]


def test_rows_of_other_sizes_have_steps_of_their_own() -> None:
    """Rows a thousand times apart, and one of zeros, are alike in relative error."""
    weights = matrix(4, 500)
    weights[1] *= 1000.0
    weights[2] = 0.0
    coded = codecs.encode("uniform@1", weights, {"step": 0.5, "rows": True, "threshold": 0.5})
    error = (codecs.decode("uniform@1", coded) - weights).norm(dim=1) / weights.norm(dim=1)
    assert error[2].isnan()
    assert (error[[0, 1, 3]] < 0.16).all()  # 0.5 / √12 = .144, steps 4 % up or down
    assert (error[[0, 1, 3]] > 0.13).all()


def test_a_threshold_above_a_half_gives_fewer_bits() -> None:
    """By hand: of root mean square 1, so 0.55 is 1 from 0.5 on, but 0 if 1 begins at 0.6."""
    weights = torch.tensor([[0.55, -1.65, 0.0, (4 - 0.55**2 - 1.65**2) ** 0.5]])
    for threshold, expected in ((0.5, [1, -2, 0, 1]), (0.6, [0, -2, 0, 1])):
        coded = codecs.encode("uniform@1", weights, {"threshold": threshold})
        assert codecs.decode("uniform@1", coded).round().int().tolist() == [expected]


def test_rows_that_matter_have_smaller_steps() -> None:
    """By hand: 16 times the weight is 16^¼ = 2 times the step; each class has a table of its own."""
    weights = matrix(3, 400)
    matters = torch.tensor([16.0, 1.0, 16.0]).double()
    params = {"step": 0.5, "rows": True, "threshold": 0.5}
    coded = codecs.encode("uniform@1", weights, params, rows=matters)
    found = codecs.decode("uniform@1", coded)
    steps = [float(row[row > 0].min()) for row in found]
    roots = weights.square().mean(1).sqrt().tolist()
    relative = [step / root for step, root in zip(steps, roots, strict=True)]
    assert relative[1] / relative[0] == pytest.approx(2.0, rel=0.1)
    assert relative[2] / relative[0] == pytest.approx(1.0, rel=0.1)
    assert len(coded.header["low"]) == 3  # the classes 0, 1 (empty) and 2, half a factor of two apart
    alike = codecs.encode("uniform@1", weights, params, rows=torch.ones(3).double())
    assert torch.equal(
        codecs.decode("uniform@1", alike),
        codecs.decode("uniform@1", codecs.encode("uniform@1", weights, params)),
    )


def test_weights_of_rows_are_checked_and_told_only_to_codecs_that_take_them() -> None:
    """Zero, too few, another dtype; `rtn@1` knows nothing of rows."""
    weights = matrix(3, 8)
    for rows in (torch.zeros(3).double(), torch.ones(2).double(), torch.ones(3)):
        with pytest.raises(ConfigError, match="row"):
            codecs.encode("uniform@1", weights, {"rows": True}, rows=rows)
    ones = torch.ones(3).double()
    assert codecs.encode("rtn@1", weights, {}, rows=ones).header
    extreme = torch.tensor([1e-300, 1.0, 1e300], dtype=torch.float64)
    coded = codecs.encode("uniform@1", weights, {"rows": True, "power": 1.0}, rows=extreme)
    assert torch.isfinite(codecs.decode("uniform@1", coded)).all()


def test_a_matrix_of_zeros_takes_a_few_bytes() -> None:
    """Its step may be anything."""
    for rows in (False, True):
        coded = codecs.encode("uniform@1", torch.zeros(30, 50), {"rows": rows})
        assert coded.bytes < 50
        assert not codecs.decode("uniform@1", coded).any()


def test_steps_that_overflow_are_refused() -> None:
    """An index has 32 bits; a step has to be a number of float32."""
    spike = torch.full((1, 40_000), 1e-30)
    spike[0, 0] = 3e38
    with pytest.raises(ConfigError, match="step"):
        codecs.encode("uniform@1", matrix(3, 3, scale=1e-44), {"step": 0.001})
    found = codecs.decode("uniform@1", codecs.encode("uniform@1", spike, {"step": 0.001}))
    assert found[0, 0] == pytest.approx(3e38, rel=1e-3)


def test_damaged_parts_are_refused() -> None:
    """Missing, of another dtype, of other lengths, with a step that is none."""
    coded = codecs.encode("uniform@1", matrix(8, 16), {"rows": True})
    parts, header = coded.parts, coded.header
    for wrong in (
        replace(coded, header={}),
        *(replace(coded, header={**header, "low": low}) for low in (0, [], [0.5], [0, 0])),
        replace(coded, header={**header, "rows_low": 10**6}),
        replace(coded, header={**header, "classes_low": 0}),
        *(replace(coded, parts={k: v for k, v in parts.items() if k != name}) for name in parts),
        replace(coded, parts={**parts, "step": torch.tensor([float("nan")])}),
        replace(coded, parts={**parts, "step": parts["step"].double()}),
        replace(coded, parts={**parts, "words": parts["words"][:-1]}),
        replace(coded, parts={**parts, "table": parts["table"][:0]}),
        replace(coded, shape=(8, 160)),
    ):
        with pytest.raises(SourceError):
            codecs.decode("uniform@1", wrong)
