"""How strong mutation is, from how often it helped. Pure.

The one-fifth rule (Rechenberg 1973): where more than a fifth of the mutants are better than their
parents, steps grow, else they shrink, so that at a fifth they stay. Parents and children of one
generation are compared by their scores, each relative to the best source on the same items.
"""

from __future__ import annotations

import math

from evomerge.search.history import Past

TARGET = 0.2
#: ln of the factor of a generation in which every mutant was better.
GAIN = 0.5
WEAKEST, STRONGEST = 0.1, 10.0


def strength(past: Past) -> float:
    """The factor on every step of the coming generation; 1 where it is not wanted."""
    if not past.config.adaptive_mutation:
        return 1.0
    total = 0.0
    for before, done in zip(past.own, past.own[1:], strict=False):
        old, new = before.fitness, {**before.fitness, **done.fitness}
        better = []
        for slot, parents in sorted(done.parents.items()):
            child = done.fitness.get(done.slots.get(slot, ""))
            known = [score for p in parents if (score := new.get(p, old.get(p))) is not None]
            if known:
                better.append(child is not None and child > max(known))
        if better:
            share = sum(better) / len(better)
            total += GAIN * (share - TARGET) / (1 - TARGET)
            total = min(math.log(STRONGEST), max(math.log(WEAKEST), total))
    return round(math.exp(total), 6)
