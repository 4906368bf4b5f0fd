"""DELLA: drop by rank and rescale (Deep et al. 2024, arXiv 2406.11617, MagPrune).

Within each row the elements are ranked by |τ|. The probability to keep an element rises linearly
with its rank, from density − ε for the smallest to density + ε for the largest. A kept element is
divided by its own probability, so that the expectation is the task vector. Then follow TIES' sign
election and the mean of the elected (`vote`; `normalise` is that mean's divisor), or a sum.

Probabilities are multiples of 1/65536, and the rescaling uses exactly those. Elements of equal
magnitude rank in their order. At density 1 nothing is dropped, and at 0 everything is, for any ε. A
row of one element (a vector's) has the density itself.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from agent_forge.evomerge.merging.kernels import inner_loops
from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches
from agent_forge.evomerge.merging.methods import linear, ties
from agent_forge.runs.errors import ConfigError
from agent_forge.weights import randomness
from agent_forge.weights.recipes import Parameters

#: (cut, rows, out) → the rows after the drop, in `out`.
Sparsify = Callable[[slice, torch.Tensor, torch.Tensor], torch.Tensor]


class Params(Parameters):
    """Parameters of `della`. Densities and epsilons may be given for each model."""

    density: float | tuple[float, ...] = Field(default=0.5)
    epsilon: float | tuple[float, ...] = Field(default=0.1)
    weights: tuple[float, ...] | None = None
    scale: float = 1.0
    normalise: bool = True
    vote: bool = True
    #: False leaves the kept elements as they are.
    rescale: bool = True


def reference(x: torch.Tensor, params: Params, uniform: torch.Tensor) -> torch.Tensor:
    """Return the merge of float64 task vectors [models, rows, columns], plainly.

    `uniform` has a random number of [0, 1) for each element: it is kept if that is below its p.
    """
    sparse, columns = torch.zeros_like(x), x.shape[2]
    shares = ties.densities(params.density, len(x))
    for i, epsilon in enumerate(ties.densities(params.epsilon, len(x))):
        density = shares[i]
        rank = x[i].abs().argsort(dim=1, stable=True).argsort(dim=1)
        p = density + (2 * rank / (columns - 1) - 1) * epsilon if columns > 1 else density
        p = (torch.as_tensor(p).double() * randomness.LANES).round() / randomness.LANES
        if density in (0, 1):
            p = torch.tensor(density).double()
        sparse[i] = torch.where(uniform[i] < p, x[i] / p if params.rescale else x[i], 0.0)
    if params.vote:
        weights = linear.one_each(params.weights, len(x))
        return params.scale * ties.elect_and_merge(sparse, weights, params.normalise)
    linear_params = linear.Params(weights=params.weights, normalise=params.normalise)
    return params.scale * linear.reference(sparse, linear_params)


def probabilities(columns: int, density: float, epsilon: float) -> NDArray[np.int64]:
    """Return [columns] int64: of 65536 lanes, how many keep an element of each rank, 0 the smallest."""
    if columns == 1:
        shares = np.array([density])
    else:
        shares = density - epsilon + 2.0 * epsilon * np.arange(columns) / (columns - 1)
    return np.maximum(np.rint(shares * randomness.LANES), 1).astype(np.int64)


def check(density: float, epsilon: float) -> None:
    """Raise ConfigError if density ± epsilon is not within (0, 1], or epsilon is negative."""
    if not (density - epsilon > 0 and density + epsilon <= 1 and epsilon >= 0):
        raise ConfigError(
            f"della keeps with probabilities from density − epsilon to density + epsilon: "
            f"{density:g} ± {epsilon:g} leaves 0 to 1."
        )


def sparsifier(
    work: Stretches, density: float, epsilon: float, rescale: bool, *key: str | int
) -> Sparsify:
    """Return a function that drops elements of a stretch by rank and rescales the others.

    `key` names the mask.
    """
    if density >= 1.0:  # nothing is dropped
        return lambda _, rows, out: out.copy_(rows)
    if density <= 0.0:
        return lambda _, rows, out: out.zero_()
    check(density, epsilon)
    chances = probabilities(work.columns, density, epsilon)
    factors = randomness.LANES / chances.astype(np.float64)

    def sparse(cut: slice, rows: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        lanes = randomness.lanes(rows.numel(), *key, "della", start=cut.start * work.columns)
        values = rows.cpu().numpy()
        order = np.argsort(np.abs(values), axis=1, kind="stable")
        chosen, by = np.empty(values.shape, np.int64), np.empty(values.shape, np.float32)
        np.put_along_axis(chosen, order, np.broadcast_to(chances, values.shape), axis=1)
        np.put_along_axis(by, order, np.broadcast_to(factors, values.shape), axis=1)
        mask = lanes.reshape(values.shape) < chosen
        product = values * (mask * by if rescale else mask)
        return out.copy_(torch.from_numpy(product.astype(np.float32, copy=False)))

    return sparse


def prepare(work: Stretches, params: Params, seed: int) -> Merge:
    """Return the `Merge`: inputs made sparse by their masks, voted on or added up, times λ."""
    shares = ties.densities(params.density, work.count)
    spreads = ties.densities(params.epsilon, work.count)
    sparse = [
        sparsifier(work, share, spread, params.rescale, seed, work.name, i)
        for i, (share, spread) in enumerate(zip(shares, spreads, strict=True))
    ]
    share = linear.normalised if params.normalise and not params.vote else linear.one_each
    weights = share(params.weights, work.count)

    def merged(cut: slice, x: torch.Tensor) -> torch.Tensor:
        sparse_rows = torch.empty_like(x[1:])
        for make, rows, out in zip(sparse, x[1:], sparse_rows, strict=True):
            make(cut, rows, out)
        if params.vote:
            total = inner_loops.vote(sparse_rows, weights, normalise=params.normalise)
        else:
            total = torch.zeros_like(x[0])
            for rows, weight in zip(sparse_rows, weights, strict=True):
                total.add_(rows * weight)
        return total if params.scale == 1.0 else total.mul_(params.scale)

    return merged
