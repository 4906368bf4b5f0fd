"""Diversity of a population from its sketches. Pure: no torch.

The mean distance between the candidates' task vectors, divided by the mean distance between the
sources' task vectors: 1 is as far apart as the sources are, 0 is all the same.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray


def decode(sketch: str) -> NDArray[np.float64]:
    """The sketch's vector; see `evomerge.merging.sketch`."""
    return np.frombuffer(base64.b64decode(sketch), "<f4").astype(np.float64)


def _finite(sketch: str) -> bool:
    return bool(np.isfinite(decode(sketch)).all())


def distance(a: str, b: str) -> float:
    """Estimated Euclidean distance between two task vectors."""
    difference = decode(a) - decode(b)
    return math.sqrt(math.fsum(float(x) * float(x) for x in difference))


def mean_distance(sketches: Sequence[str]) -> float:
    """Mean pairwise distance of those without NaN or Inf; 0 for fewer than two."""
    pairs = [distance(a, b) for a, b in combinations(filter(_finite, sketches), 2)]
    return math.fsum(pairs) / len(pairs) if pairs else 0.0


def diversity(population: Sequence[str], sources: Sequence[str]) -> float:
    """Mean pairwise distance of the population relative to that of the sources."""
    unit = mean_distance(sources)
    return mean_distance(population) / unit if unit else 0.0


def own_distance(index: int, population: Sequence[str], sources: Sequence[str]) -> float:
    """How far one candidate is from the others on the average, relative to the sources."""
    unit = mean_distance(sources)
    if not _finite(population[index]):
        return 0.0
    rest = [s for i, s in enumerate(population) if i != index and _finite(s)]
    others = [distance(population[index], s) for s in rest]
    return math.fsum(others) / len(others) / unit if unit and others else 0.0


def level(value: float, warn: float, reseed: float) -> str:
    """One of "healthy", "low" (a warning) or "critical" (new random pipelines)."""
    if value < reseed:
        return "critical"
    return "low" if value < warn else "healthy"
