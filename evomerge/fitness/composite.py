"""Outcomes → components → one number (SPEC §6). Pure: no torch, sums by `math.fsum`.

Perplexity is the exponential of the mean, over domains, of −log p per token (tokens of a domain
are pooled), that is the geometric mean of the domains' perplexities. Accuracy is the mean of
next-token accuracy and, where there are questions, of multiple-choice accuracy corrected for chance,
(a − c) / (1 − c), floored at 0. Speed is operations per token and memory is bytes, both by
arithmetic from the architecture, so that two merges of one shape never differ in them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from evomerge.fitness.outcomes import DomainOutcomes, Outcomes

#: An accuracy below this counts as this when it divides.
ACCURACY_FLOOR = 0.01


class Components(BaseModel):
    """The raw measurements of one model on some items."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    perplexity: float
    next_token_accuracy: float
    #: Corrected for chance; None where there were no questions.
    choice_accuracy: float | None
    #: The two above, averaged over those that exist.
    accuracy: float
    #: Floating-point operations a token.
    flops: float
    #: Weights, cache and activations, bytes.
    bytes: float
    #: Domain → perplexity.
    domains: dict[str, float]


class Weighting(BaseModel):
    """How much each component counts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    perplexity: float = 0.4
    accuracy: float = 0.3
    speed: float = 0.2
    memory: float = 0.1


class Reference(BaseModel):
    """The best source in each component, on the same items: what counts as 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    perplexity: float
    accuracy: float
    flops: float
    bytes: float


class Fitness(BaseModel):
    """The number that steers, and its parts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scalar: float
    #: Perplexity and accuracy alone, with their weights scaled to add up to 1.
    quality: float
    #: Component → normalised value.
    normalised: dict[str, float]


def components(outcomes: Outcomes, flops: float, bytes_: float) -> Components | None:
    """The components, or None where a log-likelihood is not finite or overflows."""
    rates = {d: _nll_per_token(outcomes[d]) for d in sorted(outcomes) if outcomes[d].tokens}
    mean = math.fsum(rates.values()) / len(rates)
    if not math.isfinite(mean) or max(rates.values()) > 700:
        return None
    hits = _mean(math.fsum(o.hits) / sum(o.tokens) for o in outcomes.values() if o.tokens)
    asked = [_choice_accuracy(outcomes[d]) for d in sorted(outcomes) if outcomes[d].right]
    choice = _mean(asked) if asked else None
    return Components(
        perplexity=math.exp(mean),
        next_token_accuracy=hits,
        choice_accuracy=choice,
        accuracy=hits if choice is None else (hits + choice) / 2,
        flops=flops,
        bytes=bytes_,
        domains={d: math.exp(rate) for d, rate in rates.items()},
    )


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return math.fsum(numbers) / len(numbers)


def _nll_per_token(outcomes: DomainOutcomes) -> float:
    return math.fsum(outcomes.nll) / sum(outcomes.tokens)


def _choice_accuracy(outcomes: DomainOutcomes) -> float:
    right = math.fsum(outcomes.right) / len(outcomes.right)
    chance = math.fsum(outcomes.chance) / len(outcomes.chance)
    return max(0.0, (right - chance) / (1 - chance))


def reference(sources: Iterable[Components]) -> Reference:
    """The best of the sources, component by component."""
    known = list(sources)
    return Reference(
        perplexity=min(c.perplexity for c in known),
        accuracy=max(c.accuracy for c in known),
        flops=min(c.flops for c in known),
        bytes=min(c.bytes for c in known),
    )


def fitness(
    measured: Components, best: Reference, weighting: Weighting, *, raw: bool = False
) -> Fitness:
    """The scalar: Σ weight · component, each component 1 for the best source.

    `raw` is the source documents' formula instead, 0.4/perplexity + 0.3·accuracy + 0.2/time +
    0.1/memory, with time in operations a token (10⁹) and memory in 10⁹ bytes.
    """
    if raw:
        parts = {
            "perplexity": 1 / measured.perplexity,
            "accuracy": measured.accuracy,
            "speed": 1e9 / measured.flops,
            "memory": 1e9 / measured.bytes,
        }
    else:
        parts = {
            "perplexity": best.perplexity / measured.perplexity,
            "accuracy": measured.accuracy / max(best.accuracy, ACCURACY_FLOOR),
            "speed": best.flops / measured.flops,
            "memory": best.bytes / measured.bytes,
        }
    weights = weighting.model_dump()
    scalar = math.fsum(weights[name] * parts[name] for name in weights)
    heavy = weighting.perplexity + weighting.accuracy
    judged = ("perplexity", "accuracy")
    quality = math.fsum(weights[n] * parts[n] for n in judged) / heavy if heavy else 0.0
    return Fitness(scalar=scalar, quality=quality, normalised=parts)
