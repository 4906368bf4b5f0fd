"""Codecs that search: shapes, determinism, bad input, forged bytes."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_forge.events import canonical_json
from agent_forge.runs.errors import ConfigError, NotFiniteError, SourceError
from agent_forge.weights import codecs, randomness
from agent_forge.weights.codecs import Coded

#: Codec → settings that use all that it has.
CASES: dict[str, dict[str, Any]] = {
    "seedlm@1": {"bits": 3},
    "vptq@1": {"vector": 3, "bits": 4, "residual_bits": 3, "outliers": 0.2, "outlier_bits": 5},
    "hyper@1": {"points": 50, "classes": 3},
    "chain@1": {},
}
CODECS = pytest.mark.parametrize("name", CASES)


def gaussian(rows: int, columns: int, *key: str | int) -> torch.Tensor:
    values = randomness.gaussian(rows * columns, "searching", *key).reshape(rows, columns)
    return torch.from_numpy(values).float()


def gram_of(columns: int) -> torch.Tensor:
    inputs = gaussian(3 * columns, columns, "inputs").double() * torch.linspace(0.1, 2.0, columns)
    return inputs.T @ inputs / len(inputs)


def equal(one: Coded, two: Coded) -> bool:
    return (
        (one.shape, one.header, list(one.parts)) == (two.shape, two.header, list(two.parts))
    ) and all(torch.equal(one.parts[part], two.parts[part]) for part in one.parts)


@CODECS
@settings(max_examples=15, deadline=None)
@given(st.integers(1, 9), st.integers(1, 19), st.booleans(), st.integers(-149, 126))
def test_any_shape_and_scale_is_coded_and_decoded(
    name: str, rows: int, columns: int, informed: bool, power: int
) -> None:
    """The same arguments give the same bytes; what is decoded has no larger error than zeros have."""
    matrix = torch.ldexp(gaussian(rows, columns).clamp(-1.9, 1.9), torch.tensor(power))
    gram = gram_of(columns) if informed else None
    coded = codecs.encode(name, matrix, CASES[name], gram, seed=3)
    assert equal(coded, codecs.encode(name, matrix.clone(), CASES[name], gram, seed=3))
    decoded = codecs.decode(name, coded)
    assert (decoded.shape, decoded.dtype) == (matrix.shape, torch.float32)
    assert decoded.is_contiguous()
    assert torch.isfinite(decoded).all()
    if not informed:
        assert (decoded.double() - matrix.double()).norm() <= matrix.double().norm()


@CODECS
def test_matrices_without_variation_stay_what_they_are(name: str) -> None:
    zeros = torch.zeros(5, 7)
    assert torch.equal(codecs.decode(name, codecs.encode(name, zeros, CASES[name])), zeros)
    for number in (1.0, -0.3, 3e38):
        same = torch.full((5, 12), number)
        decoded = codecs.decode(name, codecs.encode(name, same, CASES[name]))
        assert (decoded.double() - number).abs().max() <= 0.45 * abs(number)


@CODECS
def test_the_largest_numbers_do_not_overflow(name: str) -> None:
    matrix = torch.full((4, 6), torch.finfo(torch.float32).max)
    matrix[1] *= -1
    decoded = codecs.decode(name, codecs.encode(name, matrix, CASES[name]))
    assert torch.isfinite(decoded).all()
    assert (decoded.sign() == matrix.sign()).all()


@CODECS
def test_the_number_of_threads_changes_no_byte(name: str) -> None:
    matrix, gram = gaussian(32, 48), gram_of(48)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(codecs.encode(name, matrix, CASES[name], gram))
    finally:
        torch.set_num_threads(before)
    assert equal(*found)


@CODECS
def test_a_transposed_view_is_coded_as_its_values(name: str) -> None:
    """A matrix whose memory is in another order."""
    matrix = gaussian(12, 10).T
    assert not matrix.is_contiguous()
    coded = codecs.encode(name, matrix, CASES[name])
    assert equal(coded, codecs.encode(name, matrix.contiguous(), CASES[name]))


@CODECS
def test_other_input_is_refused_with_its_place(name: str) -> None:
    matrix = gaussian(4, 6)
    for number, text in ((float("nan"), "nan"), (float("-inf"), "-inf")):
        broken = matrix.clone()
        broken[2, 3] = number
        with pytest.raises(NotFiniteError, match=f"{text} at row 2, column 3; 1 of 24"):
            codecs.encode(name, broken, CASES[name])
    with pytest.raises(ConfigError, match="float64"):
        codecs.encode(name, matrix.double(), CASES[name])
    with pytest.raises(ConfigError, match="at least one element"):
        codecs.encode(name, torch.zeros(0, 6), CASES[name])
    with pytest.raises(ConfigError, match="at least one element"):
        codecs.encode(name, torch.zeros(6), CASES[name])
    with pytest.raises(ConfigError, match="unheard"):
        codecs.encode(name, matrix, {"unheard": 1})


@CODECS
def test_every_part_is_needed_and_checked(name: str) -> None:
    """A part that is missing, cut or of another type, and a header without its entries."""
    coded = codecs.encode(name, gaussian(12, 20), CASES[name])
    for part, tensor in coded.parts.items():
        if part.endswith(("residual_codebook", "outlier_columns")):
            continue  # without it another matrix is described
        for other in (None, tensor[:-1], tensor.double()):
            parts = {k: v for k, v in coded.parts.items() if k != part}
            if other is not None:
                parts[part] = other
            with pytest.raises(SourceError):
                codecs.decode(name, Coded(coded.shape, coded.header, parts))
    for entry in coded.header:
        header = {k: v for k, v in coded.header.items() if k != entry}
        with pytest.raises(SourceError):
            codecs.decode(name, Coded(coded.shape, header, coded.parts))
    with pytest.raises(SourceError):
        codecs.decode(name, Coded((12, 400), coded.header, coded.parts))


@CODECS
def test_bytes_counts_header_and_parts(name: str) -> None:
    coded = codecs.encode(name, gaussian(24, 24), CASES[name])
    parts = sum(part.numel() * part.element_size() for part in coded.parts.values())
    assert parts < coded.bytes <= parts + 120


@CODECS
def test_parts_are_what_a_file_can_hold(name: str, tmp_path) -> None:
    from safetensors.torch import load_file, save_file

    coded = codecs.encode(name, gaussian(24, 24), CASES[name], gram_of(24))
    save_file(coded.parts, tmp_path / "parts.safetensors")
    parts = load_file(tmp_path / "parts.safetensors")
    again = codecs.decode(name, Coded(coded.shape, coded.header, parts))
    assert torch.equal(again, codecs.decode(name, coded))


def digest(coded: Coded) -> str:
    """SHA-256 of all that a file has of a matrix, shortened."""
    found = hashlib.sha256(canonical_json([coded.shape, coded.header]).encode())
    for name in sorted(coded.parts):
        found.update(name.encode() + coded.parts[name].numpy().tobytes())
    return found.hexdigest()[:16]


#: Codec → the digest of what it makes of `whole_numbers`; it never changes for a landed version.
LANDED = {
    "seedlm@1": "dee9adcdfd2a35a1",
    "vptq@1": "2b176a46c7bd524a",
    "hyper@1": "3b668e1dc9bee835",
    "chain@1": "0efdc0d51654f960",
}


@CODECS
def test_a_landed_version_keeps_its_bytes(name: str) -> None:
    """On any machine: the matrix and the Gram matrix are whole numbers, whose sums are exact."""
    matrix = (gaussian(24, 36) * 100).round()
    inputs = (gaussian(100, 36, "inputs") * 10).round().double()
    coded = codecs.encode(name, matrix, CASES[name], inputs.T @ inputs, seed=11)
    assert digest(coded) == LANDED[name]
