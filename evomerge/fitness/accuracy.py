"""Multiple choice by log-likelihood: the choice whose normalised log-likelihood is highest wins.

Normalised by bytes, tokens or not at all; or less the log-likelihood without the prompt, which is the
mutual information of prompt and choice (Holtzman et al. 2021, "Surface form competition").
"""

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
                scores[q, c] = -total
    return [_won(question, q, scores) for q, question in enumerate(questions)]


def _won(question: Asked, number: int, scores: dict[tuple[int, int], float]) -> int:
    count = len(question.sizes)
    values = [scores[number, c] / question.sizes[c] for c in range(count)]
    if len(question.sequences) > count:
        values = [value - scores[number, count + c] for c, value in enumerate(values)]
    if not all(np.isfinite(values)):
        return 0
    return int(values.index(max(values)) == question.answer)
