"""Paired bootstrap comparison of two models on the same items (Efron & Tibshirani 1993).

Windows, questions and problems are resampled within each domain (`evaluation.measures.bootstrap`),
and fitness is computed of every resample. The best sources' values that normalise fitness are held
fixed.

A difference is a win or a loss only if its whole interval lies beyond rounding. The same sums in
another order move every item a little, often in the same direction, and the interval of such a
difference can exclude zero. The size of rounding depends on the dtype that evaluation computes in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from evaluation.data.outcomes import DomainOutcomes, Outcomes
from evaluation.measures import bootstrap
from evaluation.measures.bootstrap import Comparison, Counts, ratio
from evomerge.fitness import composite
from evomerge.fitness.composite import Reference, Weighting

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
    best: Reference, weighting: Weighting, raw: bool, computed_in: str = "float32"
) -> float:
    """Return the largest difference of fitness that may be rounding.

    It is the change of fitness that `MEAN_ROUNDING` nats per token and `ACCURACY_ROUNDING` in every
    domain make in a model about as good as the best sources. `computed_in` is the dtype that
    evaluation computed in; a dtype that was not measured counts as bfloat16.
    """
    known = computed_in if computed_in in MEAN_ROUNDING else "bfloat16"
    likely = [(weighting.perplexity, best.perplexity)]
    likely += [(w, best.domains[d]) for d, w in weighting.domains.items() if d in best.domains]
    right = [(weighting.accuracy, best.accuracy)]
    right += [(w, best.accuracies.get(d, 0.0)) for d, w in weighting.domains.items()]
    nats = math.fsum(w / perplexity if raw else w for w, perplexity in likely)
    share = math.fsum(w if raw else w / max(a, composite.ACCURACY_FLOOR) for w, a in right)
    return MEAN_ROUNDING[known] * nats + ACCURACY_ROUNDING[known] * share


def intervals(
    outcomes: Outcomes, best: Reference, weighting: Weighting, raw: bool, *key: str | int
) -> dict[str, Interval]:
    """Return figure → the middle 95 % of what it is in the resamples.

    Figures: `judged`, the fitness without speed and memory; `perplexity`; `solved`, if there were
    problems; `choice_accuracy`, if there were questions; `bits_per_byte` and `bits_per_byte/DOMAIN`,
    if bytes were recorded.
    """
    counts = _resample(outcomes, *key)
    found = {"judged": _fitness(outcomes, counts, best, weighting, raw)}
    texts = {d: o for d, o in sorted(outcomes.items()) if o.tokens}
    nats = [ratio(counts[d][0], o.nll, o.tokens) for d, o in texts.items()]
    found["perplexity"] = np.exp(_mean(nats))
    solved = [_solved(counts[d][2], o) for d, o in sorted(outcomes.items()) if o.solved]
    if solved:
        found["solved"] = _mean(solved)
    choices = [_choices(counts[d][1], o) for d, o in sorted(outcomes.items()) if o.right]
    if choices:
        found["choice_accuracy"] = _mean(choices)
    if all(o.bytes for o in texts.values()):
        bits = {d: ratio(counts[d][0], o.nll, o.bytes) / math.log(2) for d, o in texts.items()}
        found |= {"bits_per_byte": _mean([*bits.values()])}
        found |= {f"bits_per_byte/{domain}": rate for domain, rate in bits.items()}
    ends = {name: np.quantile(some, [0.025, 0.975]) for name, some in found.items()}
    return {name: (float(low), float(high)) for name, (low, high) in ends.items()}


def compare(
    a: Outcomes, b: Outcomes, best: Reference, weighting: Weighting, raw: bool, *key: str | int
) -> Comparison:
    """Return the fitness of `a` minus the fitness of `b`. Both must hold the same items."""
    resampled = _resample(a, *key)
    means = _fitness(a, resampled, best, weighting, raw)
    differences = means - _fitness(b, resampled, best, weighting, raw)
    once = {d: tuple(np.ones((1, c.shape[1])) for c in counts) for d, counts in resampled.items()}
    point = _fitness(a, once, best, weighting, raw) - _fitness(b, once, best, weighting, raw)
    return bootstrap.interval(differences, float(point[0]))


def _resample(outcomes: Outcomes, *key: str | int) -> dict[str, Resampled]:
    """Return domain → the counts of each window, question and problem in each resample."""
    result = {}
    for domain in sorted(outcomes):
        seen = outcomes[domain]
        parts = (("windows", seen.nll), ("questions", seen.right), ("problems", seen.solved))
        result[domain] = tuple(bootstrap.draws(len(x), *key, domain, what) for what, x in parts)
    return result


def _fitness(
    outcomes: Outcomes,
    counts: dict[str, Resampled],
    best: Reference,
    weighting: Weighting,
    raw: bool,
) -> NDArray[np.float64]:
    """Return the fitness of every resample, without speed and memory.

    The formula is that of `composite.fitness`, on whole arrays.
    """
    texts = [d for d in sorted(outcomes) if outcomes[d].tokens]
    rates = {d: ratio(counts[d][0], outcomes[d].nll, outcomes[d].tokens) for d in texts}
    hits = {d: ratio(counts[d][0], outcomes[d].hits, outcomes[d].tokens) for d in texts}
    right = {d: _choices(counts[d][1], o) for d, o in sorted(outcomes.items()) if o.right}
    solved = {d: _solved(counts[d][2], o) for d, o in sorted(outcomes.items()) if o.solved}
    perplexity = np.exp(_mean([*rates.values()]))
    accuracy = _mean([_mean([*kind.values()]) for kind in (hits, right, solved) if kind])
    if raw:
        units = (1.0, 1.0)
    else:
        units = (best.perplexity, max(best.accuracy, composite.ACCURACY_FLOOR))
    total = weighting.perplexity * units[0] / perplexity + weighting.accuracy * accuracy / units[1]
    for domain, weight in sorted(weighting.domains.items()):
        parts = []
        if domain in rates:
            parts.append((1.0 if raw else best.domains[domain]) / np.exp(rates[domain]))
        own = [kind[domain] for kind in (hits, right, solved) if domain in kind]
        if own:
            floor = max(best.accuracies.get(domain, 0.0), composite.ACCURACY_FLOOR)
            parts.append(_mean(own) / (1.0 if raw else floor))
        total = total + weight * _mean(parts) if parts else total
    return total


def _mean(values: list[Counts]) -> Counts:
    return np.mean(values, axis=0)


def _choices(counts: Counts, outcomes: DomainOutcomes) -> Counts:
    size = counts.sum(axis=1)
    right = counts @ np.asarray(outcomes.right, np.float64) / size
    chance = counts @ np.asarray(outcomes.chance, np.float64) / size
    return np.maximum(0.0, (right - chance) / (1 - chance))


def _solved(counts: Counts, outcomes: DomainOutcomes) -> Counts:
    return counts @ np.asarray(outcomes.solved, np.float64) / counts.sum(axis=1)
