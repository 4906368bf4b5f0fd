"""VPTQ: vector quantisation with second-order error feedback (arXiv 2409.17066).

A vector is `vector` weights of one column (one input channel), of consecutive rows. It becomes the
index of its nearest centre of a codebook. K-means finds the codebook (`search/kmeans.py`), weighted by
the diagonal of H, the Gram matrix of the layer's inputs: every element of a vector has the weight of
its column. With `residual_bits` a second codebook codes the error of the first. With `outliers` the
columns of the largest diagonal have a separate codebook, with another width. A vector lies in one
column. So columns are quantised one after the other, and each column's error is fed forward to later
columns, by the inverse of H as in GPTQ: the paper's channel-independent second-order optimisation.

A weight takes bits / vector + residual_bits / vector bits, and the codebooks 16 bits a number.

What differs from the paper: codebooks are found once, on the weights before feedback, and are not
trained further; one codebook serves the whole matrix (no groups of columns); columns keep their order.
Without `gram` every column counts alike, outliers are the columns of the largest norm, and there is no
feedback. The matrix is divided by a power of two first, so that float16 holds any codebook. Rows that
`vector` does not divide are filled up by repeating the last one. A codebook has fewer than 2^bits
centres if the matrix has fewer different vectors; indices are then as narrow as its size allows.

`error_feedback.inverse_factor` computes the same factor U by LAPACK, with other last bits. This codec
keeps its own, because other bits can change what it writes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.codecs import Coded, matrices
from agent_forge.weights.codecs.packing import bits
from agent_forge.weights.codecs.search import kmeans
from agent_forge.weights.codecs.search.compiler import compiled


@compiled
def _factor(matrix):  # pyright: ignore
    """Replace the lower triangle by L with L Lᵀ = matrix; return False if there is no such L."""
    size = matrix.shape[0]
    column = np.empty(size)
    for j in range(size):
        if not matrix[j, j] > 0.0:
            return False
        root = np.sqrt(matrix[j, j])
        matrix[j, j] = root
        for i in range(j + 1, size):
            matrix[i, j] /= root
            column[i] = matrix[i, j]
        for i in range(j + 1, size):
            factor, row = column[i], matrix[i]
            for k in range(j + 1, i + 1):
                row[k] -= factor * column[k]
    return True


@compiled
def _invert(upper):  # pyright: ignore
    """Return the inverse of an upper triangular matrix, of the same shape, float64."""
    size = upper.shape[0]
    inverse = np.zeros((size, size))
    for i in range(size - 1, -1, -1):
        row = inverse[i]
        row[i] = 1.0
        for k in range(i + 1, size):
            factor, other = upper[i, k], inverse[k]
            for j in range(k, size):
                row[j] -= factor * other[j]
        scale = upper[i, i]
        for j in range(i, size):
            row[j] /= scale
    return inverse


def inverse_factor(gram: torch.Tensor, damping: float) -> NDArray[np.float64]:
    """Return the upper triangular U with UᵀU = H⁻¹, [columns, columns] float64, in one order of sums.

    H = `gram` + `damping` · mean of its diagonal · I; a Gram matrix of zeros counts as I. With the
    columns reversed H has a factor L Lᵀ, so H = R Rᵀ with R upper triangular, and U = R⁻¹. Raises
    ConfigError if H has no such factor: `gram` is not positive semidefinite.
    """
    hessian = gram.numpy().copy()
    mean = float(np.diagonal(hessian).mean())
    hessian[np.diag_indices_from(hessian)] += damping * mean if mean > 0.0 else 1.0
    backwards = np.ascontiguousarray(hessian[::-1, ::-1])
    if not _factor(backwards):
        raise ConfigError("the Gram matrix is not positive semidefinite, so it is none.")
    return _invert(np.ascontiguousarray(np.tril(backwards)[::-1, ::-1]))


class Params(BaseModel):
    """Settings of VPTQ."""

    model_config = ConfigDict(extra="forbid")

    #: Weights of a vector, and bits of its index.
    vector: int = Field(4, ge=1, le=32)
    bits: int = Field(8, ge=1, le=16)
    #: Bits of the index into the residual codebook; 0: no residual codebook.
    residual_bits: int = Field(0, ge=0, le=16)
    #: Share of the columns with a separate codebook, and that codebook's width and bits.
    outliers: float = Field(0.0, ge=0.0, le=0.5)
    outlier_vector: int = Field(2, ge=1, le=32)
    outlier_bits: int = Field(8, ge=1, le=16)
    #: True if k-means weighs columns by the Gram matrix; True if errors are fed forward.
    weighted: bool = True
    feedback: bool = True
    #: Share of the Gram matrix' mean diagonal that is added to its diagonal.
    damping: float = Field(0.01, gt=0.0, le=1.0)
    #: The most rounds of k-means.
    rounds: int = Field(25, ge=0, le=1000)


@dataclass(frozen=True)
class Codebooks:
    """Codebooks of a set of columns: centres as the file has them, in float32."""

    #: Weights of a vector.
    width: int
    #: The first codebook and the residual ones, [k, width] each.
    centres: tuple[NDArray[np.float32], ...]

    def code(self, column: NDArray[np.float64]) -> tuple[list[NDArray[np.int64]], NDArray]:
        """Return (each codebook's indices [vectors], decoded column [rows] float64) of a column."""
        padded = np.pad(column, (0, -column.size % self.width), mode="edge")
        left = padded.reshape(-1, self.width)
        indices, total = [], np.zeros_like(left)
        for centres in self.centres:
            nearest, _ = kmeans.assign((left - total).astype(np.float32), centres)
            indices.append(nearest)
            total += centres[nearest]
        return indices, total.reshape(-1)[: column.size]


class Vptq:
    """The codec `vptq@1`."""

    Params = Params

    def encode(
        self, matrix: torch.Tensor, gram: torch.Tensor | None, params: Params, seed: int
    ) -> Coded:
        """Return the coded matrix. Raises ConfigError or NotFiniteError by `matrices.check`."""
        matrices.check(matrix, gram)
        values, exponent = matrices.scaled(matrix)
        importance = _importance(values, gram, params)
        outliers = _outliers(values, gram, params)
        plain = np.setdiff1d(np.arange(values.shape[1]), outliers)
        books = _codebooks(values, importance, plain, outliers, params, seed)
        indices = _quantise(values, gram, books, outliers, params)
        header = {"exponent": exponent, "vector": params.vector}
        parts = {}
        if outliers.size:
            header["outlier_vector"] = params.outlier_vector
            parts["outlier_columns"] = torch.from_numpy(outliers.astype(np.int32))
        for kind, columns in (("", plain), ("outlier_", outliers)):
            if columns.size:
                parts |= _stored(kind, books[kind], [indices[column] for column in columns])
        return Coded((matrix.shape[0], matrix.shape[1]), header, parts)

    def decode(self, coded: Coded) -> torch.Tensor:
        """Return the decoded matrix, [rows, columns] float32. Raises SourceError for other bytes."""
        rows, columns = coded.shape
        exponent = matrices.whole(coded, "exponent", -200, 200)
        outliers = _outlier_columns(coded)
        plain = np.setdiff1d(np.arange(columns), outliers)
        values = np.empty((columns, rows), np.float32)
        for kind, chosen in (("", plain), ("outlier_", outliers)):
            if chosen.size:
                width = matrices.whole(coded, f"{kind}vector", 1, 32)
                values[chosen] = _loaded(coded, kind, width, chosen.size)
        return matrices.unscaled(values.T, exponent)


def _importance(
    values: NDArray[np.float64], gram: torch.Tensor | None, params: Params
) -> NDArray[np.float64]:
    """Return the weight of each column in k-means, [columns] float64: the gram's diagonal, or ones."""
    if gram is None or not params.weighted:
        return np.ones(values.shape[1])
    return np.maximum(np.diagonal(gram.numpy()), 0.0)


def _outliers(
    values: NDArray[np.float64], gram: torch.Tensor | None, params: Params
) -> NDArray[np.int64]:
    """Return the numbers, ascending, of the columns of the largest diagonal or norm, [outliers]."""
    count = min(round(params.outliers * values.shape[1]), values.shape[1] - 1)
    size = (values**2).sum(0) if gram is None else np.diagonal(gram.numpy())
    return np.sort(np.argsort(-size, kind="stable")[:count])


def _codebooks(
    values: NDArray[np.float64],
    importance: NDArray[np.float64],
    plain: NDArray[np.int64],
    outliers: NDArray[np.int64],
    params: Params,
    seed: int,
) -> dict[str, Codebooks]:
    """Return "" → codebooks of the plain columns, and "outlier_" → those of the outliers, if any."""
    kinds = {
        "": (plain, params.vector, (params.bits, params.residual_bits)),
        "outlier_": (outliers, params.outlier_vector, (params.outlier_bits,)),
    }
    codebooks = {}
    for kind, (columns, width, widths) in kinds.items():
        if not columns.size:
            continue
        vectors = values[:, columns].T
        vectors = np.pad(vectors, ((0, 0), (0, -vectors.shape[1] % width)), mode="edge")
        left = vectors.reshape(-1, width).astype(np.float32)
        weights = np.repeat(importance[columns], left.shape[0] // columns.size)
        books = []
        for number, width_of_index in enumerate(w for w in widths if w):
            key = ("vptq@1", seed, kind, number)
            centres = kmeans.cluster(left, weights, 1 << width_of_index, params.rounds, *key)
            books.append(centres.astype(np.float16).astype(np.float32))
            nearest, _ = kmeans.assign(left, books[-1])
            left = left - books[-1][nearest]
        codebooks[kind] = Codebooks(width, tuple(books))
    return codebooks


def _quantise(
    values: NDArray[np.float64],
    gram: torch.Tensor | None,
    books: dict[str, Codebooks],
    outliers: NDArray[np.int64],
    params: Params,
) -> list[list[NDArray[np.int64]]]:
    """Return by column a list of each codebook's indices [vectors]; feed errors to later columns."""
    factor = None
    if gram is not None and params.feedback:
        factor = inverse_factor(gram, params.damping)
    left = np.ascontiguousarray(values.T)
    special = set(outliers.tolist())
    codes = []
    for j in range(len(left)):
        indices, decoded = books["outlier_" if j in special else ""].code(left[j])
        codes.append(indices)
        if factor is not None:
            error = (left[j] - decoded) / factor[j, j]
            left[j + 1 :] -= factor[j, j + 1 :, None] * error
    return codes


def _index_bits(centres: int) -> int:
    """Return how many bits an index into a codebook of this many centres has, at least 1."""
    return max(1, (centres - 1).bit_length())


def _stored(
    kind: str, books: Codebooks, indices: list[list[NDArray[np.int64]]]
) -> dict[str, torch.Tensor]:
    """Return name → part of a set of columns: float16 codebooks, and packed indices by column."""
    parts = {}
    for number, centres in enumerate(books.centres):
        name = f"{kind}residual_" if number else kind
        parts[f"{name}codebook"] = torch.from_numpy(centres.astype(np.float16))
        stream = torch.from_numpy(np.concatenate([column[number] for column in indices]))
        parts[f"{name}indices"] = bits.pack(stream, _index_bits(len(centres)))
    return parts


def _loaded(coded: Coded, kind: str, width: int, columns: int) -> NDArray[np.float32]:
    """Return the decoded columns of one kind, [columns, rows] float32. Raises SourceError."""
    vectors = -(-coded.shape[0] // width)
    total = np.zeros((columns * vectors, width))
    for name in (kind, f"{kind}residual_"):
        book = coded.parts.get(f"{name}codebook")
        if book is None and name != kind:
            break
        size = 0 if book is None or not book.dim() else len(book)
        centres = matrices.part(coded, f"{name}codebook", torch.float16, (size, width))
        width_of_index = _index_bits(size)
        shape = (bits.packed_bytes(len(total), width_of_index),)
        stored = matrices.part(coded, f"{name}indices", torch.uint8, shape)
        indices = bits.unpack(stored, width_of_index, len(total))
        if not size or int(indices.max()) >= size:
            raise SourceError(f"{name}indices point beyond the {size} centres of the codebook.")
        total += centres[indices].numpy()
    return total.reshape(columns, -1)[:, : coded.shape[0]].astype(np.float32)


def _outlier_columns(coded: Coded) -> NDArray[np.int64]:
    """Return the numbers of the outlier columns, [outliers] int64, ascending. Raises SourceError."""
    if "outlier_columns" not in coded.parts:
        return np.zeros(0, np.int64)
    columns = matrices.part(coded, "outlier_columns", torch.int32).numpy().astype(np.int64)
    inside = columns.size and columns[0] >= 0 and columns[-1] < coded.shape[1]
    if not inside or np.any(np.diff(columns) <= 0):
        raise SourceError("outlier_columns must be different columns of the matrix, in order.")
    return columns
