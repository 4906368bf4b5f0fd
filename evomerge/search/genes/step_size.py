"""Step size of mutation, adapted by how often mutants were better than their parents.

Pure. The one-fifth rule (Rechenberg 1973): steps grow if more than a fifth of the mutants are
better than their parents, shrink if fewer are, and stay at exactly a fifth. Parents and children of
one generation are compared by their scores, each relative to the best source on the same items.
"""

from __future__ import annotations

import math

from evomerge.search.history import Past
from evomerge.search_settings import MutationSettings

TARGET = 0.2
#: ln of the step's factor after a generation in which every mutant was better.
GAIN = 0.5
WEAKEST, STRONGEST = 0.1, 10.0


def strength(past: Past) -> float:
    """Return the factor on every step of the coming generation.

    It is 1 without `adaptive_mutation`, and always between WEAKEST and STRONGEST.
    """
    if not past.config.search_as(MutationSettings).adaptive_mutation:
        return 1.0
    total = 0.0
    for before, done in zip(past.own, past.own[1:], strict=False):
        old, new = before.fitness, {**before.fitness, **done.fitness}
        better = []
        for slot, parents in sorted(done.parents.items()):
            child = done.fitness.get(done.slots.get(slot, ""))
            scores = [score for p in parents if (score := new.get(p, old.get(p))) is not None]
            if scores:
                better.append(child is not None and child > max(scores))
        if better:
            share = sum(better) / len(better)
            total += GAIN * (share - TARGET) / (1 - TARGET)
            total = min(math.log(STRONGEST), max(math.log(WEAKEST), total))
    return round(math.exp(total), 6)
