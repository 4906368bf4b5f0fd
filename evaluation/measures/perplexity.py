"""Log-likelihood of windows, documents and choices: float32 log-probabilities, float64 sums.

In multiple choice the choice whose normalised log-likelihood is highest wins. Log-likelihoods are
normalised by bytes, by tokens or not at all. As an alternative, the log-likelihood without the prompt
is subtracted, which gives the mutual information of prompt and choice (Holtzman et al. 2021,
"Surface form competition").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from agent_forge.evaluation.backends.backend import Evaluator
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.items import Text
from agent_forge.evaluation.data.packing import Ids, ItemPack, PackedQuestion, Windows, documents
from agent_forge.runs.errors import UnmeasurableError
from agent_forge.weights import pieces
from agent_forge.weights.folders.vocabularies import Tokenizer


def score_windows(model: Evaluator, windows: Sequence[Ids]) -> tuple[list[float], list[int], list[int]]:
    """Return (Σ −log p in nats, predicted tokens, hits), each a list with one entry per window."""
    scored = model.losses(windows)
    nll = [float(losses.astype(np.float64).sum()) for losses, _ in scored]
    return nll, [len(losses) for losses, _ in scored], [int(best.sum()) for _, best in scored]


#: Windows of calibration text per domain.
WINDOWS = 8


def calibration_loss(
    model: ResidentModel,
    weights: Mapping[str, torch.Tensor],
    data: Mapping[str, ItemPack],
    tokens: int | None = None,
) -> float:
    """Return nats a token on the first `WINDOWS` windows of each domain: the mean over domains.

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


def score(model: Evaluator, split: Sequence[Windows]) -> list[float]:
    """Return a list of Σ −log p, in nats, one for each document."""
    flat = [window for document in split for window in document.windows]
    sums = iter([float(losses.astype(np.float64).sum()) for losses, _ in model.losses(flat)])
    return [sum(next(sums) for _ in document.windows) for document in split]


def scored(
    model: Evaluator, texts: Mapping[str, Sequence[Text]], tokenizer: Tokenizer, context: int, name: str
) -> tuple[dict[str, tuple[float, ...]], dict[str, tuple[int, ...]]]:
    """Return ({domain: Σ −log p in nats of each text}, {domain: bytes of each text}).

    `context`: tokens that a prediction may look back on; `name` is the model's, for errors. Raises
    UnmeasurableError for a model that gives no finite numbers.
    """
    items: dict[str, tuple[float, ...]] = {}
    sizes: dict[str, tuple[int, ...]] = {}
    for domain, domain_texts in texts.items():
        split = documents(domain_texts, tokenizer, context)
        with pieces.divided():
            items[domain] = tuple(score(model, split))
        sizes[domain] = tuple(piece.bytes for piece in split)
        for document, nats in zip(split, items[domain], strict=True):
            if not math.isfinite(nats):
                raise UnmeasurableError(name, document.id)
    return items, sizes


def score_questions(model: Evaluator, questions: Sequence[PackedQuestion]) -> list[int]:
    """Return a list of 1 if a question's right choice won, else 0; ties go to the earlier choice."""
    flat = [(q, c) for q, question in enumerate(questions) for c in range(len(question.sequences))]
    loss_rows = model.continuations([questions[q].pair(c) for q, c in flat])
    scores = {
        place: -float(losses.astype(np.float64).sum())
        for place, losses in zip(flat, loss_rows, strict=True)
    }
    return [_won(question, q, scores) for q, question in enumerate(questions)]


def _won(question: PackedQuestion, number: int, scores: dict[tuple[int, int], float]) -> int:
    count = len(question.sizes)
    values = [scores[number, c] / question.sizes[c] for c in range(count)]
    if len(question.sequences) > count:
        values = [value - scores[number, count + c] for c, value in enumerate(values)]
    if not all(np.isfinite(values)):
        return 0
    return int(values.index(max(values)) == question.answer)
