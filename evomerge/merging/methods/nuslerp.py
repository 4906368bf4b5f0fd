"""NuSLERP: slerp of two models by their weights, of whole tensors, of rows or of columns.

Source: Goddard 2024, "nuslerp" in mergekit.

    t = w₁ / (w₀ + w₁),  θ = the angle between v₀ and v₁
    nuslerp(v₀, v₁) = sin((1 − t)θ)/sin θ · v₀ + sin(tθ)/sin θ · v₁

With a base v₀ and v₁ are task vectors, without one they are the weights themselves. Unlike in
`slerp`, the arc is followed up to sin θ = 1e-4 (from there on to 0° the straight line is the arc in
float32), and either model may be first. The straight line is taken below that, towards 180°, too,
and if one of the two is zero. A row of a matrix is an output feature; a row of a tensor with more
dimensions is all that belongs to an index of the first. A vector is one row.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches
from agent_forge.evomerge.merging.methods import linear
from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Parameters

#: Below this sin² θ counts as zero.
TINY = 1e-8

Floats = NDArray[np.float64]


class Params(Parameters):
    """Parameters of `nuslerp`: the two weights, and what an angle is taken of."""

    weights: tuple[float, ...] | None = None
    by: Literal["tensor", "row", "column"] = "tensor"


def reference(x: torch.Tensor, params: Params) -> torch.Tensor:
    """Return the merge of float64 x [2, rows, columns] by the formula above, plainly."""
    first, second = params.weights or (1.0, 1.0)
    t = second / (first + second)
    dims = {"tensor": (0, 1), "row": (1,), "column": (0,)}[params.by]
    if x.shape[2] == 1:  # a vector is one row
        dims = (0, 1)
    a, b = x
    lengths = a.norm(dim=dims, keepdim=True) * b.norm(dim=dims, keepdim=True)
    cosine = torch.where(lengths > 0, (a * b).sum(dim=dims, keepdim=True) / lengths, 1.0)
    angle = cosine.clamp(-1, 1).acos()
    arc = (((1 - t) * angle).sin() * a + (t * angle).sin() * b) / angle.sin()
    return torch.where(angle.sin() ** 2 > TINY, arc, (1 - t) * a + t * b)


def coefficients(products: Floats, t: float) -> tuple[Floats, Floats]:
    """Return (factors of v₀, factors of v₁) from ⟨v₀, v₀⟩, ⟨v₁, v₁⟩, ⟨v₀, v₁⟩ [3, pairs]."""
    aa, bb, ab = products
    lengths = np.sqrt(aa) * np.sqrt(bb)
    cosine = np.divide(ab, lengths, out=np.ones_like(lengths), where=lengths > 0.0).clip(-1.0, 1.0)
    straight = 1.0 - cosine**2 <= TINY
    angle = np.arccos(np.where(straight, 0.0, cosine))
    sine = np.sin(angle)
    return (
        np.where(straight, 1.0 - t, np.sin((1.0 - t) * angle) / sine),
        np.where(straight, t, np.sin(t * angle) / sine),
    )


def _products(x: torch.Tensor, dim: int) -> Floats:
    """Return ⟨x[1], x[1]⟩, ⟨x[2], x[2]⟩ and ⟨x[1], x[2]⟩ along a dimension, [3, pairs] float64."""
    a, b = x[1].double(), x[2].double()
    return torch.stack([(u * v).sum(dim=dim) for u, v in ((a, a), (b, b), (a, b))]).cpu().numpy()


def _mixed(x: torch.Tensor, factors: tuple[Floats, Floats], dim: int) -> torch.Tensor:
    """Return both inputs times factors, which follow the other dimension, added up in x[0]."""
    first, second = (torch.from_numpy(f).to(x).unsqueeze(dim) for f in factors)
    return torch.mul(x[1], first, out=x[0]).add_(x[2] * second)


def prepare(work: Stretches, params: Params) -> Merge:
    """Return the `Merge` by the angles of the whole tensor, its rows or its columns."""
    if work.count != 2:
        raise ConfigError(f"nuslerp takes two models, not {work.count}")
    t = linear.normalised(params.weights, work.count)[1]
    if params.by == "tensor" or work.columns == 1:
        whole = work.gram()
        first, second = coefficients(whole[[0, 1, 0], [0, 1, 1]], t)
        return linear.combining([float(first), float(second)], work.columns)
    if params.by == "row":
        return lambda _, x: _mixed(x, coefficients(_products(x, 1), t), 1)
    columns = sum(work.each(lambda _, x: _products(x, 0)), np.zeros((3, work.columns)))
    factors = coefficients(columns, t)
    return lambda _, x: _mixed(x, factors, 0)
