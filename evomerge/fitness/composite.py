"""Composite fitness: outcomes → components → one number (SPEC §6).

Pure: no torch, sums by `math.fsum`. Perplexity is the exponential of the mean, over domains, of −log p
per token (tokens of a domain are pooled): the geometric mean of the domains' perplexities. Bits per
byte are the same over UTF-8 bytes, so that models with different tokenizers can be compared.

Accuracy is the mean of up to three parts, of those that exist: next-token accuracy, multiple-choice
accuracy corrected for chance, (a − c) / (1 − c), floored at 0, and the share of problems solved.

Speed is operations per token and memory is bytes. Both are computed from the architecture, so that
two merges of one shape never differ in them. The advantage of a model with fewer blocks is scaled
by its quality, at most 1: a useless model gains nothing by being fast.

A domain's score is the mean of its perplexity and its accuracy, each relative to the best source in
that domain, of those that the domain has.

A skill is what a domain asks for. With the setting `skills` the parts perplexity and accuracy are
put together from skills, each relative to its own best source (the specialist), and not from the
figures over all domains at once: `specialists` and `SKILLS` say how.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Literal

from agent_forge.evaluation.data.outcomes import DomainOutcomes, Outcomes
from agent_forge.runs.event_types import EventPart

#: Smallest divisor: a best source's accuracy below this is replaced by this.
ACCURACY_FLOOR = 0.01
#: Smallest factor of a geometric mean of skills. Without it, all candidates that lost a skill would
#: have the score 0, and a search could not tell which of them holds more of the others.
SKILL_FLOOR = 0.01

#: How the domains are put together; `pooled` computes each figure over all domains at once.
Skills = Literal["pooled", "mean", "geometric", "worst"]


def _geometric_mean(values: Sequence[float]) -> float:
    logarithms = (math.log(max(value, SKILL_FLOOR)) for value in values)
    return math.exp(math.fsum(logarithms) / len(values))


#: Setting → one number from the skills of a model, each 1 if it equals its specialist's.
#: No skill is clipped at 1, so that a search can go past the sources. With the mean, one skill can
#: pay for another that is lost; with the geometric mean, only in proportion; with the worst, never.
SKILLS: Mapping[Skills, Callable[[Sequence[float]], float]] = {
    "mean": fmean,
    "geometric": _geometric_mean,
    "worst": min,
}


class Components(EventPart):
    """The raw measurements of one model on some items."""

    perplexity: float
    next_token_accuracy: float
    #: Corrected for chance; None if there were no questions.
    choice_accuracy: float | None
    #: The mean of next-token accuracy, choice accuracy and `solved`, of those that exist.
    accuracy: float
    #: Floating-point operations per token.
    flops: float
    #: Weights, cache and activations, bytes.
    bytes: float
    #: Domain → perplexity.
    domains: dict[str, float]
    #: Domain → accuracy: the same mean within the domain. In a run with `skills` it is the accuracy
    #: of the questions and problems alone in a domain that has some.
    accuracies: dict[str, float] = {}
    #: The mean over domains; None if bytes were not recorded.
    bits_per_byte: float | None = None
    #: The mean, over domains, of the share of problems solved; None if there were no problems.
    solved: float | None = None


class Weighting(EventPart):
    """Weights of the components and of the domains' scores."""

    perplexity: float = 0.4
    accuracy: float = 0.3
    speed: float = 0.2
    memory: float = 0.1
    #: Domain → weight.
    domains: dict[str, float] = {}

    @property
    def parts(self) -> dict[str, float]:
        """Part of the scalar → weight; a domain's part is named `domain/…`."""
        weights = self.model_dump(exclude={"domains"})
        return weights | {f"domain/{name}": weight for name, weight in sorted(self.domains.items())}

    @property
    def judged(self) -> float:
        """The total weight of the parts that are measured by running the model."""
        return self.perplexity + self.accuracy + math.fsum(self.domains.values())


#: Parts that depend only on the architecture.
ARCHITECTURE = ("speed", "memory")


class Reference(EventPart):
    """The best source's value of each component, on the same items; it counts as 1."""

    perplexity: float
    accuracy: float
    flops: float
    bytes: float
    #: The lowest perplexity and the highest accuracy of each domain that has a weight; in a run with
    #: `skills`, of each domain.
    domains: dict[str, float] = {}
    accuracies: dict[str, float] = {}


class Fitness(EventPart):
    """The number that the search maximises, and its parts."""

    scalar: float
    #: Perplexity and accuracy alone, with their weights scaled to add up to 1.
    quality: float
    #: Component → normalised value.
    normalised: dict[str, float]


def components(
    outcomes: Outcomes, flops: float, bytes_: float, skills: Skills = "pooled"
) -> Components | None:
    """Return the `Components` of outcomes; None if a log-likelihood is not finite or overflows.

    A domain's perplexity counts as an overflow above exp(700). `skills` decides what the accuracy of
    a domain is of: see `Components.accuracies`. Next-token accuracy would hide a lost skill, because
    a model that solves none of a domain's problems still predicts most of its text.
    """
    read = {d: outcomes[d] for d in sorted(outcomes) if outcomes[d].tokens}
    rates = {d: math.fsum(o.nll) / sum(o.tokens) for d, o in read.items()}
    mean = math.fsum(rates.values()) / len(rates)
    if not math.isfinite(mean) or max(rates.values()) > 700:
        return None
    accuracies = {d: _accuracies(outcomes[d]) for d in sorted(outcomes)}
    hits, choice, solved = (_mean(a[i] for a in accuracies.values()) for i in range(3))
    bits = [bits_per_byte(outcomes[d]) for d in rates]
    accuracy = _mean((hits, choice, solved))
    assert hits is not None
    assert accuracy is not None
    by_domain = {d: _domain_accuracy(values, skills) for d, values in accuracies.items()}
    return Components(
        perplexity=math.exp(mean),
        next_token_accuracy=hits,
        choice_accuracy=choice,
        accuracy=accuracy,
        flops=flops,
        bytes=bytes_,
        domains={d: math.exp(rate) for d, rate in rates.items()},
        accuracies={d: share for d, share in by_domain.items() if share is not None},
        bits_per_byte=None if None in bits else _mean(bits),
        solved=solved,
    )


def _accuracies(outcomes: DomainOutcomes) -> tuple[float | None, float | None, float | None]:
    """Return (next-token, choice corrected for chance, solved) accuracies, None for missing kinds.

    An accuracy is None if the domain has no items of its kind. Solved: share of problems solved.
    """
    hits = math.fsum(outcomes.hits) / sum(outcomes.tokens) if outcomes.tokens else None
    choice = _choice_accuracy(outcomes) if outcomes.right else None
    solved = math.fsum(outcomes.solved) / len(outcomes.solved) if outcomes.solved else None
    return hits, choice, solved


def _domain_accuracy(kinds: tuple[float | None, ...], skills: Skills) -> float | None:
    """Return the mean of next-token, choice, solved; unless pooled, of the last two if any; or None."""
    checked = _mean(kinds[1:])
    return _mean(kinds) if skills == "pooled" or checked is None else checked


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None if all are."""
    numbers = [value for value in values if value is not None]
    return math.fsum(numbers) / len(numbers) if numbers else None


def bits_per_byte(outcomes: DomainOutcomes) -> float | None:
    """Return the bits per byte of a domain; None if bytes were not recorded."""
    size = sum(outcomes.bytes)
    return math.fsum(outcomes.nll) / math.log(2) / size if size else None


def _choice_accuracy(outcomes: DomainOutcomes) -> float:
    right = math.fsum(outcomes.right) / len(outcomes.right)
    chance = math.fsum(outcomes.chance) / len(outcomes.chance)
    return max(0.0, (right - chance) / (1 - chance))


def reference(sources: Iterable[Components], domains: Collection[str] = ()) -> Reference:
    """Return a `Reference`: the sources' best value of each component, and in each of `domains`."""
    models = list(sources)
    of = {d: [c for c in models if d in c.accuracies or d in c.domains] for d in sorted(domains)}
    texts = {d: [c.domains[d] for c in those if d in c.domains] for d, those in of.items()}
    accuracies = {d: [c.accuracies[d] for c in those if d in c.accuracies] for d, those in of.items()}
    return Reference(
        perplexity=min(c.perplexity for c in models),
        accuracy=max(c.accuracy for c in models),
        flops=min(c.flops for c in models),
        bytes=min(c.bytes for c in models),
        domains={d: min(values) for d, values in texts.items() if values},
        accuracies={d: max(values) for d, values in accuracies.items() if values},
    )


def specialists(measured: Components, best: Reference) -> tuple[dict[str, float], dict[str, float]]:
    """Return ({domain: perplexity}, {domain: accuracy}), each relative to the domain's best source.

    A perplexity is inverted: higher is better. An accuracy is left out if no source reaches
    `ACCURACY_FLOOR`: without a specialist there is no skill to hold, and a hit by chance would
    count a hundredfold. It is left out for all models alike.
    """
    texts = {d: best.domains[d] / value for d, value in measured.domains.items()}
    accuracies = {
        d: value / best.accuracies[d]
        for d, value in measured.accuracies.items()
        if best.accuracies[d] >= ACCURACY_FLOOR
    }
    return texts, accuracies


def fitness(
    measured: Components,
    best: Reference,
    weighting: Weighting,
    *,
    raw: bool = False,
    skills: Skills = "pooled",
) -> Fitness:
    """Return `Fitness`: the scalar Σ weight · part, the quality, and the parts, 1 for the best source.

    With `skills` other than `pooled`, perplexity and accuracy are put together from the skills of all
    domains; accuracy is 0 for all models if no source has a skill. Such a reference has all domains.

    With `raw` it is the formula of the source documents, 0.4/perplexity + 0.3·accuracy + 0.2/time +
    0.1/memory, with time in 10⁹ operations per token and memory in 10⁹ bytes. A domain's score is
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
    if skills != "pooled":
        texts, accuracies = specialists(measured, best)
        parts["perplexity"] = SKILLS[skills](list(texts.values()))
        parts["accuracy"] = SKILLS[skills](list(accuracies.values())) if accuracies else 0.0
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
    """Return the mean of a domain's 1/perplexity and accuracy, over the best source's unless `raw`.

    If these items have nothing of the domain, the score is 0 for all models.
    """
    ratios = []
    if domain in measured.domains:
        unit = 1.0 if raw else best.domains[domain]
        ratios.append(unit / measured.domains[domain])
    if domain in measured.accuracies:
        unit = 1.0 if raw else max(best.accuracies[domain], ACCURACY_FLOOR)
        ratios.append(measured.accuracies[domain] / unit)
    return math.fsum(ratios) / len(ratios) if ratios else 0.0
