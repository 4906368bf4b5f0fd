"""Clear losers are dropped before they have cost a whole evaluation. Pure: no torch.

The windows of a draw are scored in blocks, in an order of the draw's own key that is the same for all
candidates; after each block but the last, two questions are asked.

The gate: is the perplexity so far more than `gate_perplexity` times that of the worst source on the
same windows? A broken merge shows itself in the first block.

The test: is the mean difference of −log p per token to the best source, paired window by window,
above zero? A one-sided paired t-test at each look, each at `stop_error` over the number of looks, so
that by the union bound (Bonferroni) a candidate which is not worse is stopped with at most that
probability. The quantile of Student's t is the expansion of Abramowitz & Stegun 1964, 26.7.5.

What was dropped keeps a fitness, of the windows that it was scored on and of the same windows of the
sources, so that it still sorts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist

from pydantic import BaseModel, ConfigDict

from evaluation.data.outcomes import Draw, Draws, Outcomes
from evomerge.fitness import composite
from weights import randomness

#: At most so many blocks.
BLOCKS = 6


class Gate(BaseModel):
    """The rules. 0 switches one off."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    perplexity: float
    error: float

    @property
    def shut_off(self) -> bool:
        """Nothing is ever dropped."""
        return not self.perplexity and not self.error


def blocks(draws: Draws, least: int, *key: str | int) -> list[Draws]:
    """The windows of a draw, in a random order by key, in blocks of at least `least` a domain."""
    parts: dict[str, list[tuple[int, ...]]] = {}
    for domain, draw in sorted(draws.items()):
        order = randomness.permutation(len(draw.windows), *key, domain)
        shuffled = [draw.windows[int(i)] for i in order]
        size = max(least, -(-len(shuffled) // BLOCKS))
        size = -(-size // least) * least
        parts[domain] = [
            tuple(sorted(shuffled[first : first + size])) for first in range(0, len(shuffled), size)
        ]
    count = max(map(len, parts.values()), default=0)
    empty = Draw(windows=(), questions=())
    return [
        {
            d: Draw(windows=own[number], questions=()) if number < len(own) else empty
            for d, own in parts.items()
        }
        for number in range(count)
    ]


def reason(gate: Gate, mine: Outcomes, sources: Mapping[str, Outcomes], looks: int) -> str | None:
    """Why a candidate is dropped after these windows, or None. `sources`: name → the same windows.

    `looks` is how often it is asked at the most.
    """
    own = composite.components(mine, 1.0, 1.0)
    if own is None:
        return None  # NaN or Inf: the evaluation says so itself
    theirs = {name: composite.components(seen, 1.0, 1.0) for name, seen in sources.items()}
    known = {name: found.perplexity for name, found in theirs.items() if found is not None}
    if not known:
        return None
    read = sum(len(seen.nll) for seen in mine.values())
    worst = max(known, key=lambda name: (known[name], name))
    if gate.perplexity and own.perplexity > gate.perplexity * known[worst]:
        return (
            f"perplexity {own.perplexity:.4g} on the first {read} windows, more than "
            f"{gate.perplexity:g} times that of the worst source ({worst}, {known[worst]:.4g})"
        )
    best = min(known, key=lambda name: (known[name], name))
    if gate.error and _worse(mine, sources[best], gate.error / looks):
        return (
            f"perplexity {own.perplexity:.4g} on the first {read} windows, clearly worse than "
            f"{best} ({known[best]:.4g}) at an error rate of {gate.error:g} in {looks} looks"
        )
    return None


def _worse(mine: Outcomes, other: Outcomes, level: float) -> bool:
    """Whether the mean paired difference of −log p per token is above zero at this level."""
    differences = [
        (a - b) / n
        for domain in sorted(mine)
        for a, b, n in zip(mine[domain].nll, other[domain].nll, mine[domain].tokens, strict=True)
    ]
    count = len(differences)
    if count < 8:
        return False
    mean = math.fsum(differences) / count
    variance = math.fsum((d - mean) ** 2 for d in differences) / (count - 1)
    return mean > quantile(1 - level, count - 1) * math.sqrt(variance / count)


def quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's t, to about 1e-3 from 7 degrees of freedom on."""
    z, n = NormalDist().inv_cdf(min(probability, 1 - 1e-15)), float(freedom)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / n ** (power + 1) for power, term in enumerate(terms))
