"""Schedules: the learning rate of each step. Pure.

A schedule is a pydantic model of its parameters with `rate(step, steps) -> float`.
"""

from __future__ import annotations

import math

from pydantic import Field
from typing_extensions import override

from agent_forge.weights import algorithms
from agent_forge.weights.recipes import Frozen


class _Schedule(Frozen):
    """Parameters that all schedules share."""

    #: The highest learning rate.
    peak: float = Field(gt=0)
    #: Share of the steps in which the rate rises linearly to the peak.
    warmup: float = Field(default=0.0, ge=0, le=1)


class Constant(_Schedule):
    """Linear warm-up over `warmup` of the steps, then the peak."""

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step, 0 … `steps` − 1."""
        return self.peak * min(1.0, (step + 1) / max(1, round(steps * self.warmup)))


class Cosine(_Schedule):
    """Linear warm-up, then a cosine down to `floor` of the peak (Loshchilov & Hutter 2017)."""

    #: Share of the steps in which the rate rises linearly to the peak, at least one step.
    warmup: float = Field(default=0.1, ge=0, le=1)
    #: Share of the peak that is left at the end.
    floor: float = Field(default=0.1, ge=0, le=1)

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step, 0 … `steps` − 1."""
        warm = max(1, round(steps * self.warmup))
        if step < warm:
            return self.peak * (step + 1) / warm
        along = (step - warm) / max(1, steps - warm)
        fallen = 0.5 * (1 + math.cos(math.pi * along))
        return self.peak * (self.floor + (1 - self.floor) * fallen)


class CosineBurst(Cosine):
    """A cosine whose rate is `factor` times as high in the steps `first` … `upto` − 1."""

    factor: float = Field(ge=1, le=10)
    first: int = Field(ge=0)
    upto: int = Field(ge=0)

    @override
    def rate(self, step: int, steps: int) -> float:
        whole = super().rate(step, steps)
        return whole * self.factor if self.first <= step < self.upto else whole


#: Name and version of a schedule → its class.
SCHEDULES = {
    "constant@1": "agent_forge.weights.training.schedules:Constant",
    "cosine@1": "agent_forge.weights.training.schedules:Cosine",
    "cosine-burst@1": "agent_forge.weights.training.schedules:CosineBurst",
}


def of(name: str) -> type[Constant | Cosine]:
    """Return the class of the schedule NAME@VERSION. Raises UnknownAlgorithmError."""
    return algorithms.find(SCHEDULES, name, "schedule")
