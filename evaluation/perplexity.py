"""Log-likelihood and next-token accuracy of windows. Log-probabilities are float32, sums float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evaluation.backends.backend import Evaluator
from evaluation.data.packing import Ids


def score_windows(
    model: Evaluator, windows: Sequence[Ids]
) -> tuple[list[float], list[int], list[int]]:
    """Per window: Σ −log p in nats, predicted tokens, hits."""
    scored = model.losses(windows)
    nll = [float(losses.astype(np.float64).sum()) for losses, _ in scored]
    return nll, [len(losses) for losses, _ in scored], [int(best.sum()) for _, best in scored]
