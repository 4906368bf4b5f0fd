"""RegMean and RegMean++: linear layers whose outputs are nearest to those of all the models.

Source: Jin et al. 2023, "Dataless Knowledge Fusion by Merging Weights of Language Models", arXiv
2212.09849, section 3. Xᵢ [tokens, columns] are the inputs that a linear layer Wᵢ [rows, columns] of
model i has on the model's own text, wᵢ the models' weights:

    Gᵢ = XᵢᵀXᵢ / tokens, its elements off the diagonal times α
    W  = (Σ wᵢWᵢGᵢ) (Σ wᵢGᵢ)⁻¹

With α = 1 this W has the least Σ wᵢ‖Xᵢ(W − Wᵢ)ᵀ‖² / tokens; a smaller α keeps W nearer to a mean. All
else (embedding, head, norms, biases) is averaged: Σ wᵢθᵢ / Σ wᵢ.

RegMean++ (Nguyen et al. 2025, arXiv 2508.03121, section 4) takes the Xᵢ of a block from the merge:
model i's text goes through the merged embedding and the merged earlier blocks, then through block i
itself. So a block can be merged only after the blocks before it.

If ΣwᵢGᵢ is singular (fewer tokens than columns, or a column that is always zero), the authors' inverse
does not exist. Directions that no input has are averaged here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field

from agent_forge.weights.recipes import Frozen

#: Name of a method → where the inputs of its blocks come from, and its authors' default of α.
PREFIXES = {"regmean": ("own", 0.9), "regmean++": ("merged", 0.95)}
#: Eigenvalues of the gram below this share of the largest count as zero; the gram is scaled before so
#: that its diagonal is 1.
TINY = 1e-12


class Params(Frozen):
    """Parameters of both methods."""

    #: Factor of the grams' elements off the diagonal. 0 weighs each column by itself.
    alpha: float = Field(ge=0, le=1)
    #: Tokens of each model's text, and of a window.
    tokens: int = Field(default=32_768, ge=2)
    context: int = Field(default=512, ge=2)


def reference(
    weights: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    shares: Sequence[float],
    alpha: float,
) -> torch.Tensor:
    """Return a layer's merged matrix from float64 weights [rows, columns], plainly.

    `inputs` are Xᵢ, float64 [tokens, columns].
    """
    left, right = torch.zeros_like(weights[0]), 0.0
    for weight, x, share in zip(weights, inputs, shares, strict=True):
        gram = share * shrunk(x.T @ x / len(x), alpha)
        left, right = left + weight @ gram, right + gram
    return left @ torch.linalg.inv(torch.as_tensor(right))


def shrunk(gram: torch.Tensor, alpha: float) -> torch.Tensor:
    """Return a gram matrix with its elements off the diagonal times α."""
    return alpha * gram + (1.0 - alpha) * torch.diag(gram.diagonal())


def solve(
    weights: Sequence[torch.Tensor],
    grams: Sequence[torch.Tensor],
    shares: Sequence[float],
    alpha: float,
) -> torch.Tensor:
    """Return the merged layer, float64 [rows, columns].

    `grams` are XᵢᵀXᵢ / tokens, float64 [columns, columns]; shares are not negative, and one is above
    zero. What is solved for is the distance from the mean, so equal models merge into themselves.
    """
    scaled = [share * shrunk(gram, alpha) for share, gram in zip(shares, grams, strict=True)]
    total = torch.stack(scaled).sum(0)
    mean = sum(s * w.double() for s, w in zip(shares, weights, strict=True)) / sum(shares)
    pulled = torch.stack([(w.double() - mean) @ g for w, g in zip(weights, scaled, strict=True)])
    size = total.diagonal().clamp(min=0).sqrt()
    unit = torch.where(size > 0, 1.0 / size, 0.0)
    values, vectors = torch.linalg.eigh(unit[:, None] * total * unit)
    present = values > TINY * values[-1].clamp(min=0)
    vectors = unit[:, None] * vectors[:, present]
    return mean + (pulled.sum(0) @ vectors / values[present]) @ vectors.T
