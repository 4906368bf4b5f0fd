"""TSV-M: few singular vectors of each task vector, made orthogonal to those of the others.

Source: Gargiulo et al. 2025, "Task Singular Vectors: Reducing Task Interference in Model Merging",
arXiv 2412.00081, section 4.2 and algorithm 1. Of T task vectors of a matrix of rank r:

    τᵢ = Uᵢ Σᵢ Vᵢᵀ, cut to its first k = ⌊r / T⌋ singular values
    U = [U₁ … U_T],  V = [V₁ … V_T],  Σ = diag(w₁Σ₁ … w_TΣ_T)
    result = λ · U⊥ Σ V⊥ᵀ,  U⊥ = U (UᵀU)^(−1/2), the orthogonal matrix that is nearest to U

Vectors, tensors of three and more dimensions and matrices with k = 0 are averaged: λ / T · Σ wᵢτᵢ.
The weights wᵢ (1 in the paper) are factors of singular values: which directions a model takes does
not depend on them. Singular values below 1e-6 of the largest (of a low-rank adapter's matrix, say)
count as zero, in τᵢ as in U and V: a decomposition fills their directions at will, and would push
those of others aside. So equal models merge into their own first k singular values.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches
from agent_forge.evomerge.merging.kernels.short_side import TINY, ShortSide, eigen, inverse_root
from agent_forge.evomerge.merging.methods import linear
from agent_forge.evomerge.merging.methods.iso_c import Params


def reference(x: torch.Tensor, params: Params) -> torch.Tensor:
    """Return the merge of one matrix's float64 task vectors [models, rows, columns], plainly."""
    weights = torch.tensor(params.weights or [1.0] * len(x), dtype=x.dtype)
    k = min(x.shape[1:]) // len(x)
    if k == 0:
        return params.scale * (weights[:, None, None] * x).mean(dim=0)
    us, ss, vs = [], [], []
    for weight, task in zip(weights, x, strict=True):
        u, s, vt = torch.linalg.svd(task, full_matrices=False)
        there = (s > TINY * s[0]) & (torch.arange(len(s)) < k)
        us.append(u[:, there])
        ss.append(weight * s[there])
        vs.append(vt[there].T)
    return params.scale * nearest(torch.cat(us, 1)) * torch.cat(ss) @ nearest(torch.cat(vs, 1)).T


def nearest(u: torch.Tensor) -> torch.Tensor:
    """Return the orthogonal matrix nearest to `u` [n, k]: the Procrustes solution."""
    p, s, qt = torch.linalg.svd(u, full_matrices=False)
    there = s > TINY * s.max() if len(s) else s > 0
    return p[:, there] @ qt[there]


class _Parts(NamedTuple):
    """Decomposed task vectors of a matrix, with X the matrix seen from its short side."""

    side: ShortSide
    #: First singular values of each model, and right singular vectors over them: X times these are
    #: the left ones.
    values: list[torch.Tensor]
    lefts: list[torch.Tensor]
    #: (UᵀU)^(−1/2) and V⊥ᵀ.
    left_root: torch.Tensor
    right: torch.Tensor


def prepare(work: Stretches, params: Params) -> Merge:
    """Return the `Merge`, after decomposing the task vectors once for all merges of them."""
    weights = linear.one_each(params.weights, work.count)
    averaged = linear.combining([w * params.scale / work.count for w in weights], work.columns)
    k = min(work.rows, work.columns) // work.count
    if work.dimensions != 2 or k == 0:
        return averaged
    parts = work.once("task singular vectors", lambda: _decomposed(work, k))
    if parts is None:
        return averaged
    scaled = [params.scale * w * s for w, s in zip(weights, parts.values, strict=True)]
    core = (parts.left_root * torch.cat(scaled)) @ parts.right
    rows = core.split([len(s) for s in parts.values])
    factors = [left @ row for left, row in zip(parts.lefts, rows, strict=True)]
    return parts.side.product(torch.stack(factors))


def _decomposed(work: Stretches, k: int) -> _Parts | None:
    """Return the `_Parts` of task vectors cut to k singular values; None if a value is not finite."""
    side = ShortSide(work, torch.eye(work.count))
    grams = side.grams()
    if not bool(grams.isfinite().all()):
        return None
    values, rights, lefts = [], [], []
    for i in range(work.count):
        s, v = eigen(grams[i, i])
        values.append(s[:k])
        rights.append(v[:, :k])
        lefts.append(v[:, :k] / s[:k])
    crossed = [[a.T @ grams[i, j] @ b for j, b in enumerate(lefts)] for i, a in enumerate(lefts)]
    left_root = inverse_root(torch.cat([torch.cat(row, dim=1) for row in crossed]))
    right = torch.cat(rights, dim=1)
    return _Parts(side, values, lefts, left_root, inverse_root(right.T @ right) @ right.T)
