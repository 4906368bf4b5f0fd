"""Log-likelihood and next-token accuracy of windows, and of questions' choices.

Batches are cut from the windows' order alone, so the same draw gives the same shapes and, within a
profile, the same bits. Logits are turned into log-probabilities in float32, sums are float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.nn import functional as F

from evomerge.fitness.packing import Ids
from evomerge.fitness.resident import ResidentModel

#: Tokens of one forward pass, fewer where the vocabulary is large: logits stay under 64 MB.
BATCH_TOKENS = 4096
LOGIT_ELEMENTS = 1 << 24


def rows_per_batch(length: int, vocabulary: int) -> int:
    """How many sequences of `length` tokens go into one forward pass."""
    return max(1, min(BATCH_TOKENS, LOGIT_ELEMENTS // vocabulary) // length)


def batches(sequences: Sequence[Ids], vocabulary: int) -> Iterator[list[int]]:
    """Indices of sequences of one length, in their order, cut to batches."""
    lengths = sorted({len(s) for s in sequences}, reverse=True)
    for length in lengths:
        same = [i for i, s in enumerate(sequences) if len(s) == length]
        rows = rows_per_batch(length, vocabulary)
        for start in range(0, len(same), rows):
            yield same[start : start + rows]


def token_losses(model: ResidentModel, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[batch, length] ids → −log p (float32) and whether it was the most likely token, both
    [batch, length − 1].
    """
    with torch.inference_mode():
        logits = model.logits(ids)[:, :-1].float()
        targets = ids[:, 1:].to(model.device)
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        best = logits.argmax(dim=-1) == targets
        return losses.view_as(targets), best


def score_windows(
    model: ResidentModel, windows: Sequence[Ids]
) -> tuple[list[float], list[int], list[int]]:
    """Per window: Σ −log p in nats, predicted tokens, hits."""
    nll, tokens, hits = [0.0] * len(windows), [0] * len(windows), [0] * len(windows)
    for chosen in batches(windows, model.vocabulary):
        ids = torch.from_numpy(np.stack([windows[i] for i in chosen]))
        losses, best = token_losses(model, ids)
        sums = losses.cpu().numpy().astype(np.float64).sum(axis=1)
        counts = best.cpu().numpy().sum(axis=1)
        for place, i in enumerate(chosen):
            nll[i], tokens[i], hits[i] = float(sums[place]), losses.shape[1], int(counts[place])
    return nll, tokens, hits
