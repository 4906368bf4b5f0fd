"""Losses of single tokens: by a plain model, with thoughts, with pauses, with exchanged thoughts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import Module

from agent_forge.evaluation.data.items import Text
from agent_forge.evaluation.data.packing import Ids, documents
from agent_forge.phases.quietstar import figures
from agent_forge.weights import pieces, randomness
from agent_forge.weights.folders.vocabularies import Tokenizer
from agent_forge.weights.thoughts import modeling_thoughts
from agent_forge.weights.training.objectives.thoughts import predictions

#: Windows of a forward pass.
ROWS = 8

Values = NDArray[np.float64]
#: The windows of each document.
Documents = Sequence[Sequence[Ids]]


@dataclass(frozen=True)
class Scores:
    """Measured values of each document's predicted tokens, in order."""

    #: −log p in nats.
    losses: list[Values]
    #: Share of the thought in the mixture; empty for a model as it is.
    weights: list[Values]


def cut(texts: Sequence[Text], tokenizer: Tokenizer, context: int, most: int, all_: int) -> Documents:
    """Return each document's windows, at most `most` tokens of one and about `all_` in all.

    A window predicts at most `context` tokens. Raises DataError if the tokenizer does not know a text.
    """
    windows_by_document: list[list[Ids]] = []
    tokens = 0
    for text in texts:
        if tokens >= all_:
            break
        (document,) = documents([text], tokenizer, context + 1)
        windows, left = [], most
        for window in document.windows:
            if left > 0:
                windows.append(window[: left + 1])
                left -= len(windows[-1]) - 1
        tokens += most - left
        windows_by_document.append(windows)
    return windows_by_document


def held_out(
    texts: Sequence[Text], tokenizer: Tokenizer, context: int, most: int, all_: int
) -> dict[str, Documents]:
    """Return domain → the windows of its documents; see `cut`."""
    by_domain: dict[str, list[Text]] = {}
    for text in texts:
        by_domain.setdefault(text.domain, []).append(text)
    return {
        d: cut(domain_texts, tokenizer, context, most, all_)
        for d, domain_texts in sorted(by_domain.items())
    }


@dataclass(frozen=True)
class Thinking:
    """Settings of the thoughts that a model is measured with."""

    #: Tokens of a thought, and the temperature at which they are sampled.
    length: int
    temperature: float
    #: True for the likeliest thoughts instead of sampled ones.
    greedy: bool
    #: Key of what is sampled, and of the order in which thoughts are exchanged within a window.
    key: tuple[str | int, ...]

    def draws(self, windows: Sequence[int], places: int) -> torch.Tensor | None:
        """Return uniform numbers to sample thoughts by, [windows, length, places]; None if greedy."""
        if self.greedy:
            return None
        size = (self.length, places)
        numbers = [randomness.uniform(math.prod(size), "thoughts", *self.key, n) for n in windows]
        return torch.from_numpy(np.stack(numbers).reshape(-1, *size))

    def order(self, windows: Sequence[int], places: int) -> torch.Tensor:
        """Return random orders: the place whose thought each place gets, int64 [windows, places]."""
        orders = [randomness.permutation(places, "order", *self.key, n) for n in windows]
        return torch.from_numpy(np.stack(orders))


def score(module: Module, measure: str, document_windows: Documents, how: Thinking) -> Scores:
    """Return `Scores`: by document, the losses of its predicted tokens and the weights of thoughts."""
    flat = [window for document in document_windows for window in document]
    values: dict[int, tuple[Values, Values]] = {}
    passes = list(_batches(flat))

    def work(number: int) -> pieces.Tensors:
        numbers = passes[number]
        rows = torch.from_numpy(np.stack([flat[n] for n in numbers]))
        losses, weights = _rows(module, measure, rows, how, numbers)
        return {"losses": torch.from_numpy(losses), "weights": torch.from_numpy(weights)}

    for numbers, read in zip(passes, pieces.each(len(passes), work), strict=True):
        losses, weights = read["losses"].numpy(), read["weights"].numpy()
        for row, number in enumerate(numbers):
            values[number] = (losses[row], weights[row])
    scores, number = Scores([], []), 0
    for document in document_windows:
        pairs = [values[number + n] for n in range(len(document))]
        scores.losses.append(np.concatenate([losses for losses, _ in pairs]))
        scores.weights.append(np.concatenate([weights for _, weights in pairs]))
        number += len(document)
    return scores


def _batches(windows: Sequence[Ids]) -> Iterator[list[int]]:
    """Yield lists of window numbers: windows of one length, at most `ROWS` of them."""
    alike: dict[int, list[int]] = {}
    for number, window in enumerate(windows):
        alike.setdefault(len(window), []).append(number)
    for _, numbers in sorted(alike.items()):
        for at in range(0, len(numbers), ROWS):
            yield numbers[at : at + ROWS]


@torch.no_grad()
def _rows(
    module: Any, measure: str, rows: torch.Tensor, how: Thinking, numbers: Sequence[int]
) -> tuple[Values, Values]:
    """Return (losses, weights of thoughts), float64 [rows, tokens], of windows of one length."""
    device = module.get_input_embeddings().weight.device
    rows = rows.to(device)
    text, ahead = rows[:, :-1], rows[:, None, 1:]
    if measure == figures.PLAIN:
        logits = module(input_ids=text, use_cache=False).logits.float().log_softmax(-1)
        losses = -logits.gather(-1, rows[:, 1:, None]).squeeze(-1)
        return losses.double().cpu().numpy(), np.zeros((len(rows), 0))
    part = module.get_submodule(modeling_thoughts.PART)
    if measure == figures.PAUSED:
        layers = modeling_thoughts.paused(module, part, how.length, ahead[:, :0])
    else:
        draws = how.draws(numbers, text.shape[1])
        draws = None if draws is None else draws.to(device)
        ids = modeling_thoughts.sampled(module, part, text, how.length, draws, how.temperature)
        if measure == figures.EXCHANGED:
            order = how.order(numbers, text.shape[1]).to(device)
            ids = ids.gather(2, order[:, None].expand_as(ids))
        layers = modeling_thoughts.embedded(module, part, ids, ahead[:, :0])
    passed = modeling_thoughts.forward(module, text, layers)
    losses = -predictions(part, passed, ahead)[0][:, 0]
    weights = part.logit(passed.states[:, 0], passed.states[:, -1]).sigmoid()
    return losses.double().cpu().numpy(), weights.double().cpu().numpy()


def parts(
    scores: Mapping[str, Scores], hard: Mapping[str, Sequence[Sequence[int]]]
) -> tuple[dict[str, list[float]], dict[str, list[int]]]:
    """Return (items, sizes) of an observation: loss sums and counts of hard and of all tokens.

    `hard`: domain → for each document the places of its hard tokens.
    """
    items: dict[str, list[float]] = {}
    sizes: dict[str, list[int]] = {}
    for domain, domain_scores in scores.items():
        pairs = list(zip(domain_scores.losses, hard[domain], strict=True))
        items[f"{figures.HARD}/{domain}"] = [float(x[list(at)].sum()) for x, at in pairs]
        sizes[f"{figures.HARD}/{domain}"] = [len(at) for _, at in pairs]
        items[f"{figures.EVERY}/{domain}"] = [float(x.sum()) for x in domain_scores.losses]
        sizes[f"{figures.EVERY}/{domain}"] = [len(x) for x in domain_scores.losses]
        if any(map(len, domain_scores.weights)):
            items[f"{figures.WEIGHT}/{domain}"] = [float(w.sum()) for w in domain_scores.weights]
            sizes[f"{figures.WEIGHT}/{domain}"] = [len(w) for w in domain_scores.weights]
    return items, sizes
