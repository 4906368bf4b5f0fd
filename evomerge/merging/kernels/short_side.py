"""Matrices seen from their short side: what decompositions of large matrices need, in few passes.

A matrix X [m, n] with m ≥ n has the same right singular vectors as its Gram matrix XᵀX [n, n], and
its left ones are X times them. So a technique of singular vectors needs the matrices' Gram matrices,
and gives a result Σ Xᵢ Fᵢ with Fᵢ [n, n]: both go over stretches of rows. A matrix with more columns
than rows is transposed for this, and held in memory whole.

Everything is float64. Singular values down to 1e-6 of the largest keep at least three digits; those
below are float32's rounding, and count as zero (`TINY`).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches

#: Singular values below this share of the largest count as zero.
TINY = 1e-6
#: Columns of a wide matrix that are multiplied at a time.
COLUMNS = 1024


class ShortSide:
    """Combinations Xₖ = Σ mixₖᵢ τᵢ of a matrix's task vectors, their short side as columns."""

    def __init__(self, work: Stretches, mix: torch.Tensor) -> None:
        self._work = work
        self._mix = mix.to(work.pool.device, torch.float64)
        #: Float32 task vectors [models, rows, columns] of a matrix with more columns than rows.
        self._held = _held(work) if work.columns > work.rows else None
        #: Length of the short side.
        self.n = min(work.rows, work.columns)

    def grams(self) -> torch.Tensor:
        """Return XₖᵀXₗ of all pairs, float64 [combinations, combinations, n, n]."""
        count = len(self._mix)
        total = self._mix.new_zeros(count, count, self.n, self.n)
        parts = self._work.each(self._products) if self._held is None else self._blocks()
        for part in parts:
            total += part
        return total

    def _products(self, _: slice, x: torch.Tensor) -> torch.Tensor:
        mixed = torch.tensordot(self._mix, x[1:].double(), dims=1)
        return torch.einsum("kra,lrb->klab", mixed, mixed)

    def _blocks(self) -> Iterator[torch.Tensor]:
        assert self._held is not None
        for start in range(0, self._work.columns, COLUMNS):
            block = self._held[:, :, start : start + COLUMNS].double()
            mixed = torch.tensordot(self._mix, block, dims=1)
            yield torch.einsum("kac,lbc->klab", mixed, mixed)

    def product(self, factors: torch.Tensor) -> Merge:
        """Return the `Merge` Σ Xₖ Fₖ (of a wide matrix Σ FₖᵀXₖ); F is float64 [combinations, n, n]."""
        mixed = torch.einsum("ki,kab->iab", self._mix, factors)
        if self._held is None:
            return lambda _, x: torch.einsum("ira,iab->rb", x[1:].double(), mixed).float()
        merged = torch.empty(self._work.rows, self._work.columns, device=mixed.device)
        for start in range(0, self._work.columns, COLUMNS):
            block = self._held[:, :, start : start + COLUMNS].double()
            merged[:, start : start + COLUMNS] = torch.einsum("iab,iac->bc", mixed, block)
        return lambda cut, _: merged[cut]


def eigen(gram: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (singular values, right singular vectors as columns) of a matrix, largest first.

    `gram` is its XᵀX, float64 [n, n]. Singular values that count as zero are left out.
    """
    squares, vectors = torch.linalg.eigh(gram)
    values = squares.clamp(min=0).sqrt().flip(0)
    there = values > TINY * values[:1]
    return values[there], vectors.flip(1)[:, there]


def inverse_root(gram: torch.Tensor) -> torch.Tensor:
    """Return gram^(−1/2), float64 [n, n], on the directions that are there and 0 on the others."""
    values, vectors = eigen(gram)
    return (vectors / values) @ vectors.T


def _held(work: Stretches) -> torch.Tensor:
    held = torch.empty(work.count, work.rows, work.columns, device=work.pool.device)
    for cut in work.cuts:
        held[:, cut] = work.at(cut)[1:]
    return held
