"""Multiple choice by log-likelihood: the choice whose normalised log-likelihood is highest wins.

Log-likelihoods are normalised by bytes, by tokens or not at all. As an alternative, the
log-likelihood without the prompt is subtracted, which gives the mutual information of prompt and
choice (Holtzman et al. 2021, "Surface form competition").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evaluation.backends.backend import Evaluator
from evaluation.data.packing import Asked


def score_questions(model: Evaluator, questions: Sequence[Asked]) -> list[int]:
    """Return for each question 1 if the right choice won, else 0. Ties go to the earlier choice."""
    flat = [(q, c) for q, question in enumerate(questions) for c in range(len(question.sequences))]
    loss_rows = model.continuations([questions[q].pair(c) for q, c in flat])
    scores = {
        place: -float(losses.astype(np.float64).sum())
        for place, losses in zip(flat, loss_rows, strict=True)
    }
    return [_won(question, q, scores) for q, question in enumerate(questions)]


def _won(question: Asked, number: int, scores: dict[tuple[int, int], float]) -> int:
    count = len(question.sizes)
    values = [scores[number, c] / question.sizes[c] for c in range(count)]
    if len(question.sequences) > count:
        values = [value - scores[number, count + c] for c, value in enumerate(values)]
    if not all(np.isfinite(values)):
        return 0
    return int(values.index(max(values)) == question.answer)
