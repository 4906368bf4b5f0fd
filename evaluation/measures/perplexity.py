"""Log-likelihood and next-token accuracy of windows: float32 log-probabilities, float64 sums."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from evaluation.backends.backend import Evaluator
from evaluation.backends.local_backend import ResidentModel
from evaluation.data.packing import Ids, Packed


def score_windows(
    model: Evaluator, windows: Sequence[Ids]
) -> tuple[list[float], list[int], list[int]]:
    """Return three lists with an entry a window: Σ −log p in nats, predicted tokens, hits."""
    scored = model.losses(windows)
    nll = [float(losses.astype(np.float64).sum()) for losses, _ in scored]
    return nll, [len(losses) for losses, _ in scored], [int(best.sum()) for _, best in scored]


#: Windows of calibration text per domain.
WINDOWS = 8


def calibration_loss(
    model: ResidentModel,
    weights: Mapping[str, torch.Tensor],
    data: Mapping[str, Packed],
    tokens: int | None = None,
) -> float:
    """Return the mean over domains of −log p a token on the first `WINDOWS` windows of each.

    With `tokens`, on the first windows that have as many. The weights stay loaded.
    """
    model.load(weights)
    rates = []
    for domain in sorted(data):
        windows = data[domain].windows[:WINDOWS]
        if windows:
            count = len(windows) if tokens is None else -(-tokens // len(windows[0]))
            nll, sizes, _ = score_windows(model, windows[:count])
            rates.append(math.fsum(nll) / sum(sizes))
    return math.fsum(rates) / len(rates)
