"""Search of the setting `step` for a number of bits a weight, by bisection. Deterministic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from runs.errors import ConfigError
from weights import codecs
from weights.codecs import Coded

#: Steps between which one is searched, in the codec's own unit.
LEAST, MOST = 2.0**-9, 2.0**5
#: Halvings of the interval: the step's ratio to the best one is then below 1.004.
HALVINGS = 12


def bits(coded: Coded) -> float:
    """Return the bits that a coded matrix takes for a weight, header included."""
    return coded.bytes * 8 / (coded.shape[0] * coded.shape[1])


def step_for(
    name: str,
    matrix: torch.Tensor,
    most: float,
    params: Mapping[str, Any],
    gram: torch.Tensor | None = None,
    seed: int = 0,
    rows: torch.Tensor | None = None,
) -> tuple[float, Coded]:
    """Return the smallest step found with at most `most` bits a weight, and the matrix so coded.

    `name` is a codec with a setting `step` whose bits fall as the step grows; `params` its other
    settings. Raises ConfigError if even the largest step takes more bits.
    """
    low, high, best = LEAST, MOST, None
    for middle in (high, *([0.0] * HALVINGS)):
        step = middle or (low * high) ** 0.5
        coded = codecs.encode(name, matrix, {**params, "step": step}, gram, seed, rows)
        if bits(coded) <= most:
            high, best = step, (step, coded)
        elif middle:
            raise ConfigError(
                f"{name} takes {bits(coded):.3g} bits a weight at its largest step: {most:.3g} bits "
                "cannot be met"
            )
        else:
            low = step
    assert best is not None
    return best
