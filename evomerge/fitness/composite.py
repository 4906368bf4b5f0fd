"""Outcomes → components → one number (SPEC §6). Pure: no torch, sums by `math.fsum`.

Perplexity is the exponential of the mean, over domains, of −log p per token (tokens of a domain
are pooled), that is the geometric mean of the domains' perplexities. Bits per byte stand beside it,
the same over UTF-8 bytes, so that tokenizers compare. Accuracy is the mean of next-token accuracy,
of multiple-choice accuracy corrected for chance, (a − c) / (1 − c), floored at 0, and of the share
of problems solved, of those that exist. Speed is operations per token and memory is bytes, both by
arithmetic from the architecture, so that two merges of one shape never differ in them. What a model
with fewer blocks gains in them counts as far as its quality goes: a model of no use is no faster one.

A domain's score is the mean of its perplexity and its accuracy, each over the best source's in that
domain, as far as the domain has texts to tell.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from pydantic import BaseModel, ConfigDict

from evaluation.data.outcomes import DomainOutcomes, Outcomes

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
    #: Domain → accuracy, the mean of what the domain has of the three.
    accuracies: dict[str, float] = {}
    #: The mean over domains; None where bytes were not recorded.
    bits_per_byte: float | None = None
    #: The mean share of problems solved; None where there were none.
    solved: float | None = None


class Weighting(BaseModel):
    """How much each component counts, and each domain's score."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    perplexity: float = 0.4
    accuracy: float = 0.3
    speed: float = 0.2
    memory: float = 0.1
    #: Domain → weight.
    domains: dict[str, float] = {}

    @property
    def parts(self) -> dict[str, float]:
        """Part of the scalar → weight; a domain's part is named `domain/…`."""
        own = self.model_dump(exclude={"domains"})
        return own | {f"domain/{name}": weight for name, weight in sorted(self.domains.items())}

    @property
    def judged(self) -> float:
        """The weight of what is measured by running the model."""
        return self.perplexity + self.accuracy + math.fsum(self.domains.values())


#: What only the architecture decides.
ARCHITECTURE = ("speed", "memory")


class Reference(BaseModel):
    """The best source in each component, on the same items: what counts as 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    perplexity: float
    accuracy: float
    flops: float
    bytes: float
    #: Of the domains that have a weight, the lowest perplexity and the highest accuracy.
    domains: dict[str, float] = {}
    accuracies: dict[str, float] = {}


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
    found = {d: _accuracies(outcomes[d]) for d in sorted(outcomes)}
    hits, choice, solved = (_mean(a[i] for a in found.values()) for i in range(3))
    bits = [_bits_per_byte(outcomes[d]) for d in rates]
    accuracy = _mean((hits, choice, solved))
    assert hits is not None
    assert accuracy is not None
    by_domain = {d: _mean(own) for d, own in found.items()}
    return Components(
        perplexity=math.exp(mean),
        next_token_accuracy=hits,
        choice_accuracy=choice,
        accuracy=accuracy,
        flops=flops,
        bytes=bytes_,
        domains={d: math.exp(rate) for d, rate in rates.items()},
        accuracies={d: own for d, own in by_domain.items() if own is not None},
        bits_per_byte=None if None in bits else _mean(bits),
        solved=solved,
    )


def _accuracies(outcomes: DomainOutcomes) -> tuple[float | None, float | None, float | None]:
    """Next-token accuracy, choices corrected for chance, problems solved."""
    hits = math.fsum(outcomes.hits) / sum(outcomes.tokens) if outcomes.tokens else None
    choice = _choice_accuracy(outcomes) if outcomes.right else None
    solved = math.fsum(outcomes.solved) / len(outcomes.solved) if outcomes.solved else None
    return hits, choice, solved


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of those that exist."""
    numbers = [value for value in values if value is not None]
    return math.fsum(numbers) / len(numbers) if numbers else None


def _nll_per_token(outcomes: DomainOutcomes) -> float:
    return math.fsum(outcomes.nll) / sum(outcomes.tokens)


def _bits_per_byte(outcomes: DomainOutcomes) -> float | None:
    size = sum(outcomes.bytes)
    return math.fsum(outcomes.nll) / math.log(2) / size if size else None


def _choice_accuracy(outcomes: DomainOutcomes) -> float:
    right = math.fsum(outcomes.right) / len(outcomes.right)
    chance = math.fsum(outcomes.chance) / len(outcomes.chance)
    return max(0.0, (right - chance) / (1 - chance))


def reference(sources: Iterable[Components], domains: Collection[str] = ()) -> Reference:
    """The best of the sources, component by component; of `domains`, domain by domain."""
    known = list(sources)
    of = {d: [c for c in known if d in c.accuracies or d in c.domains] for d in sorted(domains)}
    texts = {d: [c.domains[d] for c in those if d in c.domains] for d, those in of.items()}
    asked = {d: [c.accuracies[d] for c in those if d in c.accuracies] for d, those in of.items()}
    return Reference(
        perplexity=min(c.perplexity for c in known),
        accuracy=max(c.accuracy for c in known),
        flops=min(c.flops for c in known),
        bytes=min(c.bytes for c in known),
        domains={d: min(values) for d, values in texts.items() if values},
        accuracies={d: max(values) for d, values in asked.items() if values},
    )


def fitness(
    measured: Components, best: Reference, weighting: Weighting, *, raw: bool = False
) -> Fitness:
    """The scalar: Σ weight · part, each part 1 for the best source.

    `raw` is the source documents' formula instead, 0.4/perplexity + 0.3·accuracy + 0.2/time +
    0.1/memory, with time in operations a token (10⁹) and memory in 10⁹ bytes; a domain's score is
    then the mean of 1/perplexity and accuracy.
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
    parts |= {f"domain/{d}": _score(measured, best, d, raw) for d in sorted(weighting.domains)}
    weights = weighting.parts
    judged = (name for name in weights if name not in ARCHITECTURE)
    heavy = weighting.judged
    quality = math.fsum(weights[n] * parts[n] for n in judged) / heavy if heavy else 0.0
    if heavy and not raw:
        for name in ARCHITECTURE:
            parts[name] = min(parts[name], 1 + (parts[name] - 1) * min(1.0, quality))
    scalar = math.fsum(weights[name] * parts[name] for name in weights)
    return Fitness(scalar=scalar, quality=quality, normalised=parts)


def _score(measured: Components, best: Reference, domain: str, raw: bool) -> float:
    """A domain's score: 1 where perplexity and accuracy are the best source's; 0, for everybody,
    where these items have nothing of it.
    """
    found = []
    if domain in measured.domains:
        unit = 1.0 if raw else best.domains[domain]
        found.append(unit / measured.domains[domain])
    if domain in measured.accuracies:
        unit = 1.0 if raw else max(best.accuracies[domain], ACCURACY_FLOOR)
        found.append(measured.accuracies[domain] / unit)
    return math.fsum(found) / len(found) if found else 0.0
