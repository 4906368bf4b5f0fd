"""Comparison of two models on the same items: paired bootstrap (Efron & Tibshirani 1993), item by item.

Windows, questions and problems are resampled within each domain (`evaluation.measures.bootstrap`), and
fitness is computed of every resample. The best sources' values that normalise fitness are held fixed.

A difference is a win or a loss only if its whole interval lies beyond rounding. The same sums in
another order move every item a little, often in the same direction, and the interval of such a
difference can exclude zero. The size of rounding depends on the dtype that evaluation computes in.

Pure: no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agent_forge.evaluation.data.outcomes import DomainOutcomes, Draw, Draws, Outcomes
from agent_forge.evaluation.measures import bootstrap
from agent_forge.evaluation.measures.bootstrap import Comparison, Counts, ratio
from agent_forge.evomerge.fitness import composite
from agent_forge.evomerge.fitness.composite import Reference, Skills, Weighting

#: Dtype of evaluation → largest difference in nats per token that counts as rounding: ten times the
#: change that was seen with another order of the same sums (docs/benchmarks.md), and less than a
#: table shows. The first is for one window. The second is for a domain's mean, in which the ups and
#: downs of single windows cancel.
WINDOW_ROUNDING: Mapping[str, float] = {"float32": 1e-5, "bfloat16": 4e-2}
MEAN_ROUNDING: Mapping[str, float] = {"float32": 1e-5, "bfloat16": 1e-3}
#: The same for accuracy over tokens: in bfloat16 two are often equally likely, and either may be taken.
#: A question that turns is 1/n of n questions, and in the interval: resamples leave it out.
ACCURACY_ROUNDING: Mapping[str, float] = {"float32": 0.0, "bfloat16": 1e-3}

#: Lower and upper end of an interval.
Interval = tuple[float, float]

#: Counts of windows, of questions and of problems, [resamples, items] each.
Resampled = tuple[Counts, ...]


def rounding(
    best: Reference,
    weighting: Weighting,
    raw: bool,
    computed_in: str = "float32",
    skills: Skills = "pooled",
) -> float:
    """Return the largest difference of fitness that may be rounding.

    It is the change of fitness that `MEAN_ROUNDING` nats per token and `ACCURACY_ROUNDING` in every
    domain make in a model about as good as the best sources. `computed_in` is the dtype that
    evaluation computed in; a dtype that was not measured counts as bfloat16.
    """
    dtype = computed_in if computed_in in MEAN_ROUNDING else "bfloat16"
    likely = [(weighting.perplexity, best.perplexity)]
    likely += [(w, best.domains[d]) for d, w in weighting.domains.items() if d in best.domains]
    right = [(weighting.accuracy, _best_accuracy(best, skills))]
    right += [(w, best.accuracies.get(d, 0.0)) for d, w in weighting.domains.items()]
    nats = math.fsum(w / perplexity if raw else w for w, perplexity in likely)
    share = math.fsum(w if raw else w / max(a, composite.ACCURACY_FLOOR) for w, a in right)
    return MEAN_ROUNDING[dtype] * nats + ACCURACY_ROUNDING[dtype] * share


def _best_accuracy(best: Reference, skills: Skills) -> float:
    """Return the accuracy that a change of accuracy is divided by; infinity if no source has a skill.

    With `skills` it is the harmonic mean of the specialists' accuracies, and with the worst skill
    the lowest, in which one step is the largest part of the skill.
    """
    if skills == "pooled":
        return best.accuracy
    reached = [a for a in best.accuracies.values() if a >= composite.ACCURACY_FLOOR]
    if not reached:
        return math.inf  # the part is 0 for all models
    return min(reached) if skills == "worst" else len(reached) / math.fsum(1 / a for a in reached)


def intervals(
    outcomes: Outcomes,
    best: Reference,
    weighting: Weighting,
    raw: bool,
    *key: str | int,
    skills: Skills = "pooled",
) -> dict[str, Interval]:
    """Return {figure: (low, high)}: the middle 95 % of the figure's values in the resamples.

    Figures: `judged`, the fitness without speed and memory; `perplexity`; `solved`, if there were
    problems; `choice_accuracy`, if there were questions; `bits_per_byte` and `bits_per_byte/DOMAIN`,
    if bytes were recorded.
    """
    counts = _resample(outcomes, *key)
    figures = {"judged": _fitness(outcomes, counts, best, weighting, raw, skills)}
    texts = {d: o for d, o in sorted(outcomes.items()) if o.tokens}
    nats = [ratio(counts[d][0], o.nll, o.tokens) for d, o in texts.items()]
    figures["perplexity"] = np.exp(_mean(nats))
    solved = [_solved(counts[d][2], o) for d, o in sorted(outcomes.items()) if o.solved]
    if solved:
        figures["solved"] = _mean(solved)
    choices = [_choices(counts[d][1], o) for d, o in sorted(outcomes.items()) if o.right]
    if choices:
        figures["choice_accuracy"] = _mean(choices)
    if all(o.bytes for o in texts.values()):
        bits = {d: ratio(counts[d][0], o.nll, o.bytes) / math.log(2) for d, o in texts.items()}
        figures |= {"bits_per_byte": _mean([*bits.values()])}
        figures |= {f"bits_per_byte/{domain}": rate for domain, rate in bits.items()}
    ends = {name: np.quantile(values, [0.025, 0.975]) for name, values in figures.items()}
    return {name: (float(low), float(high)) for name, (low, high) in ends.items()}


def compare(
    a: Outcomes,
    b: Outcomes,
    best: Reference,
    weighting: Weighting,
    raw: bool,
    *key: str | int,
    skills: Skills = "pooled",
) -> Comparison:
    """Return a `Comparison` of fitness but for speed and memory: `a` minus `b`, of the same items."""
    resampled = _resample(a, *key)
    means = _fitness(a, resampled, best, weighting, raw, skills)
    differences = means - _fitness(b, resampled, best, weighting, raw, skills)
    once = {d: tuple(np.ones((1, c.shape[1])) for c in counts) for d, counts in resampled.items()}
    point = _fitness(a, once, best, weighting, raw, skills)
    point = point - _fitness(b, once, best, weighting, raw, skills)
    return bootstrap.interval(differences, float(point[0]))


def _resample(outcomes: Outcomes, *key: str | int) -> dict[str, Resampled]:
    """Return {domain: (counts of windows, of questions, of problems), [resamples, items] each}."""
    result = {}
    for domain in sorted(outcomes):
        outcome = outcomes[domain]
        parts = (("windows", outcome.nll), ("questions", outcome.right), ("problems", outcome.solved))
        result[domain] = tuple(bootstrap.draws(len(x), *key, domain, what) for what, x in parts)
    return result


def _fitness(
    outcomes: Outcomes,
    counts: dict[str, Resampled],
    best: Reference,
    weighting: Weighting,
    raw: bool,
    skills: Skills,
) -> NDArray[np.float64]:
    """Return the fitness, without speed and memory, in every resample: [resamples].

    The formula is that of `composite.fitness`, on whole arrays.
    """
    texts = [d for d in sorted(outcomes) if outcomes[d].tokens]
    rates = {d: ratio(counts[d][0], outcomes[d].nll, outcomes[d].tokens) for d in texts}
    hits = {d: ratio(counts[d][0], outcomes[d].hits, outcomes[d].tokens) for d in texts}
    right = {d: _choices(counts[d][1], o) for d, o in sorted(outcomes.items()) if o.right}
    solved = {d: _solved(counts[d][2], o) for d, o in sorted(outcomes.items()) if o.solved}
    accuracies = _domain_accuracies((hits, right, solved), skills)
    if skills == "pooled":
        perplexity = np.exp(_mean([*rates.values()]))
        accuracy = _mean([_mean([*kind.values()]) for kind in (hits, right, solved) if kind])
        units = (1.0, 1.0)
        if not raw:
            units = (best.perplexity, max(best.accuracy, composite.ACCURACY_FLOOR))
        # The order of these operations is that of recorded leads, to the last bit.
        total = weighting.perplexity * units[0] / perplexity
        total = total + weighting.accuracy * accuracy / units[1]
    else:
        texts = [best.domains[d] / np.exp(rate) for d, rate in rates.items()]
        shares = [
            accuracy / best.accuracies[d]
            for d, accuracy in accuracies.items()
            if best.accuracies[d] >= composite.ACCURACY_FLOOR
        ]
        total = weighting.perplexity * _put_together(texts, skills)
        if shares:
            total = total + weighting.accuracy * _put_together(shares, skills)
    for domain, weight in sorted(weighting.domains.items()):
        scores = []
        if domain in rates:
            scores.append((1.0 if raw else best.domains[domain]) / np.exp(rates[domain]))
        if domain in accuracies:
            floor = max(best.accuracies.get(domain, 0.0), composite.ACCURACY_FLOOR)
            scores.append(accuracies[domain] / (1.0 if raw else floor))
        total = total + weight * _mean(scores) if scores else total
    return total


def _domain_accuracies(kinds: tuple[Mapping[str, Counts], ...], skills: Skills) -> dict[str, Counts]:
    """Return {domain: accuracy in every resample}, from (next-token, choice, solved) accuracies."""
    accuracies = {}
    for domain in sorted(set().union(*kinds)):
        checked = [kind[domain] for kind in kinds[1:] if domain in kind]
        every = [kind[domain] for kind in kinds if domain in kind]
        accuracies[domain] = _mean(every if skills == "pooled" or not checked else checked)
    return accuracies


def _put_together(values: list[Counts], skills: Skills) -> Counts:
    """Return one number per resample from the skills in it, as `composite.SKILLS` does."""
    if skills == "worst":
        return np.min(values, axis=0)
    if skills == "geometric":
        return np.exp(_mean([np.log(np.maximum(value, composite.SKILL_FLOOR)) for value in values]))
    return _mean(values)


def _mean(values: list[Counts]) -> Counts:
    return np.mean(values, axis=0)


def _choices(counts: Counts, outcomes: DomainOutcomes) -> Counts:
    size = counts.sum(axis=1)
    right = counts @ np.asarray(outcomes.right, np.float64) / size
    chance = counts @ np.asarray(outcomes.chance, np.float64) / size
    return np.maximum(0.0, (right - chance) / (1 - chance))


def _solved(counts: Counts, outcomes: DomainOutcomes) -> Counts:
    return counts @ np.asarray(outcomes.solved, np.float64) / counts.sum(axis=1)


Kind = Literal["window", "question", "problem"]
KINDS: tuple[Kind, ...] = ("window", "question", "problem")

#: Domain → kind → names of all items of the slice, in their order.
Names = Mapping[str, Mapping[Kind, Sequence[str]]]


@dataclass(frozen=True)
class ItemResult:
    """A model's result on one item of a slice; higher is better."""

    domain: str
    kind: Kind
    name: str
    #: A window's mean log p per token in nats; 0 or 1 for a question; 0 to 1 for a problem.
    value: float


@dataclass(frozen=True)
class Contest:
    """The results of two models on one item: `mine` of the first, `theirs` of the second."""

    domain: str
    kind: Kind
    name: str
    mine: float
    theirs: float
    #: The largest difference that counts as rounding.
    rounding: float = WINDOW_ROUNDING["float32"]

    @property
    def lead(self) -> float:
        """The first model's result minus the second's."""
        return self.mine - self.theirs

    @property
    def alike(self) -> bool:
        """True if the difference may be rounding."""
        return abs(self.lead) <= self.rounding


def itemise(outcomes: Outcomes, draws: Draws, names: Names | None) -> list[ItemResult]:
    """Return one `ItemResult` per scored item, by domain; without `names` items are numbered."""
    result: list[ItemResult] = []
    for domain in sorted(outcomes):
        for kind, places, values in _values(outcomes[domain], draws[domain]):
            for place, value in zip(places, values, strict=True):
                name = f"{kind} {place}" if names is None else names[domain][kind][place]
                result.append(ItemResult(domain, kind, name, value))
    return result


def _values(outcome: DomainOutcomes, draw: Draw) -> list[tuple[Kind, Sequence[int], Sequence[float]]]:
    rates = [-nll / tokens for nll, tokens in zip(outcome.nll, outcome.tokens, strict=True)]
    return [
        ("window", draw.windows, rates),
        ("question", draw.questions, list(map(float, outcome.right))),
        ("problem", draw.problems, outcome.solved),
    ]


def contest(
    first_items: Sequence[ItemResult], second_items: Sequence[ItemResult], computed_in: str = "float32"
) -> list[Contest]:
    """Return one `Contest` per item: both models' results on it, in the order of the items.

    `computed_in` is the dtype that evaluation computed in, as in `paired_bootstrap.rounding`.
    """
    bound = WINDOW_ROUNDING.get(computed_in, WINDOW_ROUNDING["bfloat16"])
    return [
        Contest(a.domain, a.kind, a.name, a.value, b.value, bound)
        for a, b in zip(first_items, second_items, strict=True)
    ]


@dataclass(frozen=True)
class Tally:
    """Numbers of items that the first model won, lost and tied, in one domain and kind."""

    domain: str
    kind: Kind
    won: int
    lost: int
    alike: int


def tally(contests: Sequence[Contest]) -> list[Tally]:
    """Return wins, losses and ties, one `Tally` for each domain and kind that has items."""
    result = []
    for domain in sorted({c.domain for c in contests}):
        for kind in KINDS:
            group = [c for c in contests if c.domain == domain and c.kind == kind]
            apart = [c.lead for c in group if not c.alike]
            if group:
                won, lost = sum(x > 0 for x in apart), sum(x < 0 for x in apart)
                result.append(Tally(domain, kind, won, lost, len(group) - won - lost))
    return result
