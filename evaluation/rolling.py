"""Rolling log-likelihood of documents: float32 log-probabilities, float64 sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evaluation.backends.backend import Evaluator
from evaluation.data.documents import Windows


def score(model: Evaluator, documents: Sequence[Windows]) -> list[float]:
    """Return Σ −log p in nats of each document."""
    flat = [window for document in documents for window in document.windows]
    sums = iter([float(losses.astype(np.float64).sum()) for losses, _ in model.losses(flat)])
    return [sum(next(sums) for _ in document.windows) for document in documents]
