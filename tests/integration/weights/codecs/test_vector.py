"""VPTQ: codebooks, residuals, outliers, weights of columns, error feedback."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights import codecs, randomness
from agent_forge.weights.codecs import Coded, vector
from agent_forge.weights.codecs.packing import bits


def gaussian(rows: int, columns: int, *key: str | int) -> torch.Tensor:
    values = randomness.gaussian(rows * columns, "vector", *key).reshape(rows, columns)
    return torch.from_numpy(values).float()


def gram_of(columns: int) -> torch.Tensor:
    """Inputs whose columns are correlated and of different size, as a layer's are."""
    mixed = gaussian(1000, columns, "inputs").double() @ gaussian(columns, columns, "mix").double()
    mixed *= torch.linspace(0.2, 3.0, columns)
    return mixed.T @ mixed / 1000


def losses(matrix: torch.Tensor, gram: torch.Tensor, **params: Any) -> tuple[float, float]:
    """(error of the weights, error of the layer's outputs) of a coded matrix, relative."""
    coded = codecs.encode("vptq@1", matrix, params, gram)
    off = (codecs.decode("vptq@1", coded) - matrix).double()
    whole = matrix.double()
    outputs = (off @ gram * off).sum() / (whole @ gram * whole).sum()
    return (off.norm() / whole.norm()).item(), outputs.sqrt().item()


def test_the_factor_is_the_inverse_s() -> None:
    """UᵀU = H⁻¹, as torch's factorisations of the same matrix have it."""
    gram = gram_of(40)
    u = torch.from_numpy(vector.inverse_factor(gram, 0.01))
    hessian = gram + 0.01 * gram.diagonal().mean() * torch.eye(40, dtype=torch.float64)
    expected = torch.linalg.cholesky(torch.linalg.inv(hessian), upper=True)
    torch.testing.assert_close(u, expected, rtol=1e-9, atol=1e-12)


def test_a_gram_matrix_of_zeros_is_no_information() -> None:
    zeros = torch.zeros(3, 3, dtype=torch.float64)
    assert np.array_equal(vector.inverse_factor(zeros, 0.01), np.eye(3))


def test_what_is_no_gram_matrix_is_refused() -> None:
    gram = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64)
    with pytest.raises(ConfigError, match="positive semidefinite"):
        codecs.encode("vptq@1", gaussian(8, 2), {}, gram)
    with pytest.raises(ConfigError, match=r"float64 \[2, 2\]"):
        codecs.encode("vptq@1", gaussian(8, 2), {}, gram[:1])


def test_a_vector_is_consecutive_rows_of_a_column() -> None:
    """Four different vectors, two to a column: the codebook has them, and nothing is lost."""
    matrix = torch.tensor([[1.0, 5.0], [2.0, 6.0], [3.0, 1.0], [4.0, 2.0]])
    coded = codecs.encode("vptq@1", matrix, {"vector": 2, "bits": 2})
    book = coded.parts["codebook"]
    assert coded.header == {"exponent": 2, "vector": 2}
    assert sorted((book * 4).tolist()) == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    indices = bits.unpack(coded.parts["indices"], 2, 4)
    expected = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [1.0, 2.0]]
    assert (book * 4)[indices].tolist() == expected
    assert torch.equal(codecs.decode("vptq@1", coded), matrix)


def test_every_vector_has_its_nearest_centre() -> None:
    """Without feedback, by brute force over the codebook as the file has it."""
    matrix = gaussian(12, 30)
    coded = codecs.encode("vptq@1", matrix, {"vector": 4, "bits": 5})
    scale = 2.0 ** coded.header["exponent"]
    book = coded.parts["codebook"].double()
    assert book.shape == (32, 4)
    some = matrix.T.reshape(-1, 4).double() / scale
    expected = torch.cdist(some, book).argmin(1)
    assert torch.equal(bits.unpack(coded.parts["indices"], 5, 90), expected)
    rebuilt = (book[expected] * scale).reshape(30, 12).T.float()
    assert torch.equal(codecs.decode("vptq@1", coded), rebuilt)


def test_feedback_is_the_reference_s() -> None:
    """Column by column in plain torch: code it, then move its error to the columns that follow."""
    matrix, gram = gaussian(8, 16), gram_of(16)
    coded = codecs.encode("vptq@1", matrix, {"vector": 2, "bits": 4}, gram)
    scale = 2.0 ** coded.header["exponent"]
    book = coded.parts["codebook"].double()
    hessian = gram + 0.01 * gram.diagonal().mean() * torch.eye(16, dtype=torch.float64)
    left, rebuilt = matrix.double() / scale, torch.zeros(8, 16, dtype=torch.float64)
    for j in range(16):
        rebuilt[:, j] = book[torch.cdist(left[:, j].reshape(-1, 2), book).argmin(1)].reshape(-1)
        # The best answer of the free columns to an error in column j (Hassibi and Stork 1992).
        inverse = torch.linalg.inv(hessian[j:, j:])
        error = (left[:, j] - rebuilt[:, j]) / inverse[0, 0]
        left[:, j:] -= error[:, None] * inverse[0]
    assert torch.equal(codecs.decode("vptq@1", coded), (rebuilt * scale).float())


def test_feedback_and_weights_lower_the_error_of_outputs() -> None:
    """At the cost of the weights' own error, which is no measure of quality."""
    matrix, gram = gaussian(128, 64), gram_of(64)
    plain = losses(matrix, gram, weighted=False, feedback=False, bits=6)
    weighted = losses(matrix, gram, feedback=False, bits=6)
    fed = losses(matrix, gram, weighted=False, bits=6)
    assert weighted[1] < plain[1]
    assert fed[1] < plain[1]
    assert fed[0] > plain[0]


def test_a_residual_codebook_lowers_the_error() -> None:
    """To below a third of the first codebook's, with as many bits again."""
    matrix, gram = gaussian(64, 64), gram_of(64)
    one = losses(matrix, gram, bits=6, feedback=False)
    two = losses(matrix, gram, bits=6, residual_bits=6, feedback=False)
    assert two[0] < 0.5 * one[0]


def test_outliers_are_the_columns_that_weigh_most() -> None:
    """By the Gram matrix' diagonal; without it by their norm. They are coded more finely."""
    matrix, gram = gaussian(24, 20), torch.eye(20, dtype=torch.float64)
    gram[3, 3] = gram[11, 11] = 50.0
    params = {"bits": 3, "outliers": 0.1, "outlier_bits": 9}
    coded = codecs.encode("vptq@1", matrix, params, gram)
    assert coded.parts["outlier_columns"].tolist() == [3, 11]
    off = (codecs.decode("vptq@1", coded) - matrix).norm(dim=0)
    assert off[[3, 11]].max() < 0.01 < off[[0, 1, 2, 4, 5]].min()
    matrix[:, 7] *= 9
    coded = codecs.encode("vptq@1", matrix, {**params, "outliers": 0.05})
    assert coded.parts["outlier_columns"].tolist() == [7]


def test_the_seed_changes_the_codebook_alone() -> None:
    matrix = gaussian(16, 16)
    one = codecs.encode("vptq@1", matrix, {"bits": 4}, seed=1)
    two = codecs.encode("vptq@1", matrix, {"bits": 4}, seed=2)
    assert not torch.equal(one.parts["codebook"], two.parts["codebook"])
    assert one.bytes == two.bytes


def test_forged_parts_are_refused() -> None:
    coded = codecs.encode("vptq@1", gaussian(16, 10), {"bits": 3, "outliers": 0.2})
    for columns in ([-1, 2], [2, 2], [5, 3], [1, 10], []):
        parts = {**coded.parts, "outlier_columns": torch.tensor(columns, dtype=torch.int32)}
        with pytest.raises(SourceError, match="outlier_columns"):
            codecs.decode("vptq@1", Coded(coded.shape, coded.header, parts))
    parts = {**coded.parts, "codebook": coded.parts["codebook"][:5]}
    with pytest.raises(SourceError, match="beyond the 5 centres"):
        codecs.decode("vptq@1", Coded(coded.shape, coded.header, parts))
    parts = {**coded.parts, "codebook": torch.tensor(1.0, dtype=torch.float16)}
    with pytest.raises(SourceError, match="codebook must be"):
        codecs.decode("vptq@1", Coded(coded.shape, coded.header, parts))
