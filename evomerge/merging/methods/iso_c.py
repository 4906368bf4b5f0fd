"""ISO-C: the sum of the task vectors with all its singular values made equal.

Source: Marczak et al. 2025, "No Task Left Behind: Isotropic Model Merging with Common and
Task-Specific Subspaces", arXiv 2502.04959, section 4.1 and algorithm 1. Of a matrix:

    Σ τᵢ = U diag(σ) Vᵀ
    result = λ · σ̄ · U Vᵀ,  σ̄ the mean of σ

Task vectors are multiplied by their weights first. Vectors and tensors of three and more dimensions
are averaged, as in the authors' code. Singular values below 1e-6 of the largest (of low-rank
adapters, say) count as zero: they are no part of the mean, and their directions, which a
decomposition fills at will, no part of the result.
"""

from __future__ import annotations

import torch

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches
from agent_forge.evomerge.merging.kernels.short_side import TINY, ShortSide, eigen
from agent_forge.evomerge.merging.methods import linear
from agent_forge.weights.recipes import Parameters


class Params(Parameters):
    """Parameters of `iso_c` and `tsv_m`. λ is `scale`."""

    weights: tuple[float, ...] | None = None
    scale: float = 1.0


def reference(x: torch.Tensor, params: Params) -> torch.Tensor:
    """Return the merge of one matrix's float64 task vectors [models, rows, columns], plainly.

    A matrix of one column is a vector.
    """
    weights = torch.tensor(params.weights or [1.0] * len(x), dtype=x.dtype)
    total = torch.tensordot(weights, x, dims=1)
    u, s, vt = torch.linalg.svd(total, full_matrices=False)
    there = s > TINY * s[0]
    if not there.any():
        return torch.zeros_like(total)
    return params.scale * s[there].mean() * u[:, there] @ vt[there]


def prepare(work: Stretches, params: Params) -> Merge:
    """Return the `Merge`, after decomposing the sum of the tensor's task vectors."""
    weights = linear.one_each(params.weights, work.count)
    averaged = linear.combining([w * params.scale / work.count for w in weights], work.columns)
    if work.dimensions != 2:
        return averaged
    side = ShortSide(work, torch.tensor([weights], dtype=torch.float64))
    gram = side.grams()[0, 0]
    if not bool(gram.isfinite().all()):
        return averaged
    values, vectors = eigen(gram)
    mean = values.mean() if len(values) else 0.0
    return side.product((params.scale * mean * (vectors / values) @ vectors.T)[None])
