"""Rolling log-likelihood of documents: float32 log-probabilities, float64 sums."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evaluation.backends.backend import Evaluator
from evaluation.data.documents import Windows, documents
from evaluation.data.items import Text
from runs.errors import UnmeasurableError


def score(model: Evaluator, split: Sequence[Windows]) -> list[float]:
    """Return Σ −log p in nats of each document."""
    flat = [window for document in split for window in document.windows]
    sums = iter([float(losses.astype(np.float64).sum()) for losses, _ in model.losses(flat)])
    return [sum(next(sums) for _ in document.windows) for document in split]


def scored(
    model: Evaluator, texts: Mapping[str, Sequence[Text]], tokenizer: Any, context: int, name: str
) -> tuple[dict[str, tuple[float, ...]], dict[str, tuple[int, ...]]]:
    """Return domain → −log p in nats of each document, and domain → their bytes.

    `context`: tokens that a prediction may look back on; `name` is the model's, for errors. Raises
    UnmeasurableError for a model that gives no finite numbers.
    """
    items: dict[str, tuple[float, ...]] = {}
    sizes: dict[str, tuple[int, ...]] = {}
    for domain, domain_texts in texts.items():
        split = documents(domain_texts, tokenizer, context)
        items[domain] = tuple(score(model, split))
        sizes[domain] = tuple(piece.bytes for piece in split)
        for document, nats in zip(split, items[domain], strict=True):
            if not math.isfinite(nats):
                raise UnmeasurableError(name, document.id)
    return items, sizes
