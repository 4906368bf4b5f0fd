"""Multiple choice by log-likelihood: the choice with the highest log-likelihood per byte wins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from evomerge.fitness.packing import Asked
from evomerge.fitness.perplexity import rows_per_batch, token_losses
from evomerge.fitness.resident import ResidentModel

#: Sequences are padded to a multiple of this, so that few shapes occur.
PAD_TO = 16


def score_questions(model: ResidentModel, questions: Sequence[Asked]) -> list[int]:
    """Per question: 1 where the right choice won, else 0. A tie goes to the earlier choice.

    Sequences of one padded length go together. Padding is on the right, where causal attention
    does not see it.
    """
    flat = [(q, c) for q, question in enumerate(questions) for c in range(len(question.sequences))]
    scores: dict[tuple[int, int], float] = {}
    groups: dict[int, list[tuple[int, int]]] = {}
    for q, c in flat:
        length = len(questions[q].sequences[c])
        padded = -(-length // PAD_TO) * PAD_TO
        groups.setdefault(min(padded, model.positions or padded), []).append((q, c))
    for length in sorted(groups):
        rows = rows_per_batch(length, model.vocabulary)
        for start in range(0, len(groups[length]), rows):
            chosen = groups[length][start : start + rows]
            ids = np.zeros((len(chosen), length), np.int64)
            for row, (q, c) in enumerate(chosen):
                sequence = questions[q].sequences[c]
                ids[row, : len(sequence)] = sequence
            losses = token_losses(model, torch.from_numpy(ids))[0].cpu().numpy()
            for row, (q, c) in enumerate(chosen):
                asked = questions[q]
                first, last = asked.starts[c] - 1, len(asked.sequences[c]) - 1
                total = float(losses[row, first:last].astype(np.float64).sum())
                scores[q, c] = -total / asked.sizes[c]
    return [_won(question, q, scores) for q, question in enumerate(questions)]


def _won(question: Asked, number: int, scores: dict[tuple[int, int], float]) -> int:
    values = [scores[number, c] for c in range(len(question.sequences))]
    if not all(np.isfinite(values)):
        return 0
    return int(values.index(max(values)) == question.answer)
