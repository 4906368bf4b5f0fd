"""Watch over a training: ends it when loss or gradient is not finite, or the loss leaps."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from runs.errors import TrainingDivergedError

#: Weight of the past in the moving average of the loss, and steps before a leap can be seen.
DECAY = 0.98
SETTLED = 20


class DivergenceWatch:
    """Moving average and variance of the loss, in float64; part of every snapshot."""

    def __init__(self, sigmas: float | None) -> None:
        """Keep the limit in standard deviations; None: only numbers that are not finite end it."""
        self._sigmas = sigmas
        self._count, self._mean, self._variance = 0.0, 0.0, 0.0

    def check(self, step: int, loss: float, norm: float) -> None:
        """Raise TrainingDivergedError if the step must not be done; else count its loss."""
        if not math.isfinite(loss):
            raise TrainingDivergedError(step, f"the loss is {loss}")
        if not math.isfinite(norm):
            raise TrainingDivergedError(step, f"the norm of the gradient is {norm}")
        if self._sigmas is None:
            return
        limit = self._mean + self._sigmas * math.sqrt(self._variance)
        if self._count >= SETTLED and loss > limit:
            raise TrainingDivergedError(
                step,
                f"the loss {loss:.4f} is above {limit:.4f}, its moving average {self._mean:.4f} and "
                f"{self._sigmas:g} standard deviations (setting divergence)",
            )
        self._take(loss)

    def _take(self, loss: float) -> None:
        """Count a loss: mean and variance with exponential weights, 1 / count in the beginning."""
        self._count += 1.0
        weight = max(1.0 - DECAY, 1.0 / self._count)
        difference = loss - self._mean
        self._mean += weight * difference
        self._variance = (1.0 - weight) * (self._variance + weight * difference * difference)

    def state(self) -> dict[str, torch.Tensor]:
        """Return "loss": count, mean and variance, float64; nothing if the watch is off."""
        if self._sigmas is None:
            return {}
        statistics = [self._count, self._mean, self._variance]
        return {"loss": torch.tensor(statistics, dtype=torch.float64)}

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take back what `state` returned."""
        if self._sigmas is not None and "loss" in tensors:
            self._count, self._mean, self._variance = tensors["loss"].tolist()
