"""Changes of a model that are added to its weights by factors: scaled singular values, other models.

A vector z scales the singular values of a matrix: W(z) = U diag(s ∘ z) Vᵀ (arXiv 2501.06252).
Here it is

    W(z) = W + U diag(s ∘ (z − 1)) Vᵀ

which is the same but for the rounding of the decomposition, gives W itself at z = 1, and is linear in
z: a mixture of vectors is the sum of their changes. So experts (vectors) and further models (task
vectors, arXiv 2212.04089) are mixed alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from runs.errors import SourceError
from weights.svf import decomposition
from weights.tensors import Weights

#: Name of a tensor → what is added to it at the factor 1, float32; unchanged tensors are left out.
Changes = Mapping[str, torch.Tensor]


def ones(factored: Weights) -> dict[str, torch.Tensor]:
    """Return name of a matrix → the vector that changes nothing, float32 [rank]."""
    return {name: torch.ones(len(s)) for name, _, s, _ in decomposition.matrices(factored)}


def of_vectors(factored: Weights, vectors: Weights) -> dict[str, torch.Tensor]:
    """Return the change that vectors z make, computed in float64.

    `vectors` are float32 [rank] by name of their matrix. Raises SourceError if they do not fit.
    """
    changes: dict[str, torch.Tensor] = {}
    for name, u, s, vt in decomposition.matrices(factored):
        z = vectors.get(name)
        if z is None or z.shape != s.shape:
            raise SourceError(f"the vectors do not fit: {name} needs {len(s)} numbers")
        if not torch.equal(z, torch.ones_like(z)):
            step = s * (z.to(torch.float64) - 1.0)
            changes[name] = ((u * step) @ vt).to(torch.float32)
    if strange := sorted(set(vectors) - {name for name, *_ in decomposition.matrices(factored)}):
        raise SourceError(f"the vectors do not fit: there is no matrix {strange[0]}")
    return changes


def of_model(base: Weights, model: Weights) -> dict[str, torch.Tensor]:
    """Return the task vector of a model: what it has more than the base, float32.

    Raises SourceError if the two are not of one architecture.
    """
    if different := sorted(set(base) ^ set(model)):
        raise SourceError(f"only one of the two models has tensor {different[0]}")
    changes: dict[str, torch.Tensor] = {}
    for name, tensor in base.items():
        other = model[name]
        if other.shape != tensor.shape:
            raise SourceError(f"tensor {name} has shapes {[*tensor.shape]} and {[*other.shape]}")
        if not torch.equal(other.float(), tensor.float()):
            changes[name] = other.float() - tensor.float()
    return changes


def added(
    base: Weights, changes: Sequence[Changes], factors: Sequence[float]
) -> dict[str, torch.Tensor]:
    """Return base + Σ factor · change in float32, in the order given; untouched tensors as they are.

    Multiplications and additions are separate operations: the bits are the same on every processor.
    """
    weights = dict(base)
    for change, factor in zip(changes, factors, strict=True):
        if factor != 0.0:
            for name, tensor in change.items():
                weights[name] = weights[name] + tensor * factor
    return weights
