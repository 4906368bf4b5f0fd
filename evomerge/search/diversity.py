"""Diversity of a population, from sketches of its task vectors; and the search's stopping rule.

Diversity is the mean distance between the candidates' task vectors, divided by the mean distance
between the sources' task vectors: at 1 the candidates are as far apart as the sources, at 0 they
are all the same. Pure: no torch.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray


def decode(sketch: str) -> NDArray[np.float64]:
    """Return the sketch's vector as float64; the format is that of `evomerge.merging.sketch`."""
    return np.frombuffer(base64.b64decode(sketch), "<f4").astype(np.float64)


def _finite(sketch: str) -> bool:
    return bool(np.isfinite(decode(sketch)).all())


def distance(a: str, b: str) -> float:
    """Return the estimated Euclidean distance of two task vectors, from their sketches."""
    difference = decode(a) - decode(b)
    return math.sqrt(math.fsum(float(x) * float(x) for x in difference))


def cosine(a: str, b: str) -> float | None:
    """Return the estimated cosine of two task vectors; None if a sketch is 0 or not finite."""
    x, y = decode(a), decode(b)
    lengths = math.sqrt(math.fsum(x * x)) * math.sqrt(math.fsum(y * y))
    if not lengths or not math.isfinite(lengths):
        return None
    return min(1.0, max(-1.0, math.fsum(x * y) / lengths))


def mean_distance(sketches: Sequence[str]) -> float:
    """Return the mean pairwise distance of sketches without NaN or Inf; 0 for fewer than two."""
    pairs = [distance(a, b) for a, b in combinations(filter(_finite, sketches), 2)]
    return math.fsum(pairs) / len(pairs) if pairs else 0.0


def diversity(population: Sequence[str], sources: Sequence[str]) -> float:
    """Return the population's mean pairwise distance over the sources'; 0 if the sources have none."""
    unit = mean_distance(sources)
    return mean_distance(population) / unit if unit else 0.0


def own_distance(index: int, population: Sequence[str], sources: Sequence[str]) -> float:
    """Return a candidate's mean distance to the others, relative to the sources' mean distance.

    Sketches with NaN or Inf are left out; 0 if the candidate's own sketch is one of them.
    """
    unit = mean_distance(sources)
    if not _finite(population[index]):
        return 0.0
    rest = [s for i, s in enumerate(population) if i != index and _finite(s)]
    distances = [distance(population[index], s) for s in rest]
    return math.fsum(distances) / len(distances) / unit if unit and distances else 0.0


def level(value: float, warn: float, reseed: float) -> str:
    """Return "healthy", "low" (a warning) or "critical" (losers' slots get new random pipelines).

    "low" is below `warn`, "critical" is below `reseed`.
    """
    if value < reseed:
        return "critical"
    return "low" if value < warn else "healthy"


def converged(champions: Sequence[float | None], threshold: float, patience: int) -> bool:
    """Return True if the champion's relative gain over `patience` generations is below `threshold`.

    `champions` are the champion's selection-slice scores after each generation, generation 0 first;
    None: no score. If one of the two compared scores is None, return True only if both are. A
    patience of 0 never converges.
    """
    if patience == 0 or len(champions) <= patience:
        return False
    before, now = champions[-patience - 1], champions[-1]
    if before is None or now is None:
        return before is now
    return now - before < threshold * abs(before)
