"""Combinations of low-rank changes into one: the eleven of peft's `add_weighted_adapter`.

With Δᵢ = sᵢ Bᵢ Aᵢ and weights wᵢ:

    cat, svd              Σ wᵢ Δᵢ, exactly; svd: the nearest matrix of a rank
    NAME_svd              a merge NAME of the Δᵢ themselves, then the nearest matrix of a rank
    NAME                  the merge NAME of the Aᵢ and of the Bᵢ, each with weights √|wᵢ sᵢ|; a negative
                          weight stands at A. B A of the sums has products of different adapters, too

NAME is `linear`, `ties`, `dare_linear`, `dare_ties` or `magnitude_prune` (svd is linear_svd). TIES
(arXiv 2306.01708) elects signs without weights, as peft does; DARE (arXiv 2311.03099) divides by the
density.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from runs.errors import ConfigError
from weights import randomness
from weights.adapters.choices import Combination
from weights.adapters.pairs import Pair
from weights.adapters.truncation import truncated

#: Returns numbers in [0, 1), float64 [count], for a part of adapter number i.
Draw = Callable[[int, str, int], torch.Tensor]


def combined(
    how: Combination, module: str, pairs: Sequence[Pair], weights: Sequence[float], rank: int
) -> Pair:
    """Return one pair of scale 1 for a module that these adapters change.

    `rank` is that of the result of `svd` and `…_svd`. Raises ConfigError for pairs of several ranks
    where one is needed.
    """
    scaled = [weight * pair.scale for weight, pair in zip(weights, pairs, strict=True)]
    embedding = pairs[0].embedding

    def draw(adapter: int, part: str, count: int) -> torch.Tensor:
        key = (how.seed, "adapter-mask", adapter, part, module)
        return torch.from_numpy(randomness.uniform(count, *key))

    if how.name in ("cat", "svd"):
        a = torch.cat([pair.a * weight for pair, weight in zip(pairs, scaled, strict=True)])
        b = torch.cat([pair.b for pair in pairs], dim=1)
        a, b = (a, b) if how.name == "cat" else _nearest(a, b, rank)
        return Pair(a, b, embedding=embedding)
    if how.name.endswith("_svd"):
        deltas = [pair.delta() for pair in pairs]
        total = _merged(how, how.name.removesuffix("_svd"), deltas, weights, "delta", draw)
        return replace(truncated(total.double(), rank)[0], embedding=embedding)
    if len({pair.rank for pair in pairs}) > 1:
        ranks = ", ".join(str(pair.rank) for pair in pairs)
        raise ConfigError(
            f"{how.name} merges matrices of one rank, and {module} has the ranks {ranks}. Take "
            f"{'cat or svd' if how.name == 'linear' else f'cat, svd or {how.name}_svd'}."
        )
    roots = [abs(weight) ** 0.5 for weight in scaled]
    signed = [-root if weight < 0 else root for root, weight in zip(roots, scaled, strict=True)]
    a = _merged(how, how.name, [pair.a for pair in pairs], signed, "A", draw)
    b = _merged(how, how.name, [pair.b for pair in pairs], roots, "B", draw)
    return Pair(a, b, embedding=embedding)


def _merged(
    how: Combination,
    name: str,
    tensors: Sequence[torch.Tensor],
    weights: Sequence[float],
    part: str,
    draw: Draw,
) -> torch.Tensor:
    """Return the merge of tensors of one shape by a method of `PLAIN`."""
    density = 1.0 if how.density is None else how.density
    if name.startswith("dare"):
        tensors = [_dropped(t, density, draw(i, part, t.numel())) for i, t in enumerate(tensors)]
    elif name != "linear":
        tensors = [_largest(t, density) for t in tensors]
    stacked = torch.stack(list(tensors))
    factors = torch.tensor(list(weights)).reshape(-1, *[1] * tensors[0].dim())
    if not name.endswith("ties"):
        return (stacked * factors).sum(0)
    votes = stacked.sign().sum(0) if how.sign == "frequency" else stacked.sum(0)
    agrees = stacked.sign() == torch.where(votes >= 0, 1, -1)
    return (stacked * factors * agrees).sum(0) / agrees.sum(0).clamp(min=1)


def _largest(tensor: torch.Tensor, density: float) -> torch.Tensor:
    """Return a tensor of which ⌊density · n⌋ numbers are left, the largest by magnitude."""
    if density >= 1:
        return tensor
    flat, count = tensor.flatten(), int(density * tensor.numel())
    places = flat.abs().topk(count).indices
    return torch.zeros_like(flat).index_copy(0, places, flat[places]).reshape(tensor.shape)


def _dropped(tensor: torch.Tensor, density: float, drawn: torch.Tensor) -> torch.Tensor:
    """Return a tensor of which each number is left with a chance of `density`, over the density."""
    if density >= 1:
        return tensor
    return tensor * (drawn < density).reshape(tensor.shape) / density


def _nearest(a: torch.Tensor, b: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A and B of the matrix of a rank that is nearest to B A, by QR of both factors."""
    left, upper = torch.linalg.qr(b.double())
    right, lower = torch.linalg.qr(a.double().T)
    u, s, vh = torch.linalg.svd(upper @ lower.T)
    columns = min(rank, len(s))
    return (
        (vh[:columns] @ right.T).float(),
        (left @ u[:, :columns] * s[:columns]).float(),
    )
