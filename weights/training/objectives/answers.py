"""Objective `answers`: answers to prompts, predicted token by token; prompts are read and not learned.

A stream of data is a row of items, each a prompt and then its answer with the end token. A token of an
answer is written as −1 − its id, so an item ends where an answer does. A step's rows are filled with
whole items, drawn with replacement by the key (seed, purpose, step): first a stream by its share, then
one of its items. Items in a row do not see each other: each item's positions begin at 0, and
transformers therefore masks attention between items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F
from transformers import PreTrainedModel

from agent_forge.runs.errors import ConfigError, DataError
from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.objectives import Batch
from agent_forge.weights.training.objectives.next_token import (
    NoParams,
    Stateless,
    check_inputs,
    check_streams,
)
from agent_forge.weights.training.windows import Ids, drawn

#: Largest difference of logits, beside the largest logit, that is rounding.
APART = 1e-3


def ends(stream: Ids) -> NDArray[np.int64]:
    """Return the index after the last token of each item, ascending, [items] int64.

    Raises DataError for a stream that begins with an answer, or ends without one.
    """
    answer = stream < 0
    if not len(stream) or answer[0] or not answer[-1]:
        raise DataError("a stream of items begins with a prompt and ends with an answer")
    return np.flatnonzero(answer & ~np.append(answer[1:], False)) + 1


@torch.inference_mode()
def check_apart(module: PreTrainedModel) -> None:
    """Raise ConfigError if a model's items of a row see each other: an item's logits then differ."""
    vocabulary, device = module.config.get_text_config().vocab_size, module.device
    ids = torch.tensor([[3, 5, 2, 4, 6, 1, 2, 3, 5, 4, 1, 2]], device=device) % vocabulary
    places = torch.arange(6, device=device).repeat(2)[None]
    row = module(input_ids=ids, position_ids=places).logits[0, 6:]
    alone = module(input_ids=ids[:, 6:]).logits[0]
    if not (row - alone).abs().max() <= APART * (1 + alone.abs().max()):
        raise ConfigError(
            "the model's architecture lets the examples of a row see each other: its attention, or its "
            "state, goes over their ends. Give a decoder such as Llama or Qwen2."
        )


def filled(rows: Sequence[Sequence[Ids]], width: int) -> Batch:
    """Return {"tokens", "places", "answers", "scale"} → tensor, of rows of items.

    Items have `width` tokens at most in a row; the rest of it is 0 and no answer. See `Answers.batch`.
    """
    tokens = np.zeros((len(rows), width), np.int64)
    places = np.tile(np.arange(width), (len(rows), 1))
    for number, row in enumerate(rows):
        at = 0
        for item in row:
            tokens[number, at : at + len(item)] = item
            at += len(item)
            places[number, at:] = np.arange(width - at)
    answers = tokens[:, 1:] < 0
    scale = np.full(len(rows), len(rows) / answers.sum(), np.float32)
    return {
        "tokens": torch.from_numpy(np.where(tokens < 0, -1 - tokens, tokens)),
        "places": torch.from_numpy(places),
        "answers": torch.from_numpy(answers),
        "scale": torch.from_numpy(scale),
    }


class Answers(Stateless):
    """Objective: the mean of −log p over the tokens of a step's answers, nats a token."""

    Params = NoParams

    def __init__(
        self,
        recipe: Train,
        module: torch.nn.Module,
        streams: Mapping[str, Ids],
        inputs: Mapping[str, Tensors],
    ) -> None:
        """Check the streams against the digests of the recipe.

        Raises ConfigError for missing streams or for inputs, SourceChangedError for other data,
        DataError for an item that is longer than a window.
        """
        check_inputs("answers", (), recipe, inputs)
        check_streams("answers", recipe, streams)
        self._module = module
        self._device = next(module.parameters()).device
        self._recipe = recipe
        names = sorted(recipe.data)
        self._items = [_items(name, streams[name], recipe.context) for name in names]
        shares = np.asarray([recipe.data[name] for name in names])
        self._edges = np.cumsum(shares / shares.sum())
        self.tokens = recipe.batch * recipe.context

    def batch(self, step: int) -> Batch:
        """Return {"tokens", "places", "answers", "scale"} → tensor, with the rows of a step.

        "tokens": [batch, context + 1] int64; "places": positions within their items, the same shape;
        "answers": [batch, context] bool, True where the next token is one of an answer; "scale":
        [batch] float32, the number of the step's rows over that of its answers' tokens.
        """
        recipe, width = self._recipe, self._recipe.context + 1
        items = drawn(self._recipe, step, self._edges, self._items)
        rows, item = [], next(items)
        for _ in range(recipe.batch):
            row = list[Ids]()
            while sum(map(len, row)) + len(item) <= width:
                row.append(item)
                item = next(items)
            rows.append(row)
        return filled(rows, width)

    def loss(self, part: Batch) -> torch.Tensor:
        """Return scale · Σ −log p of the rows' answers / number of rows, a scalar.

        Its mean over equal parts of a step is the mean over the tokens of all answers of the step.
        """
        tokens, answers = part["tokens"].to(self._device), part["answers"].to(self._device)
        places = part["places"].to(self._device)
        logits = self._module(input_ids=tokens[:, :-1], position_ids=places[:, :-1]).logits
        lost = F.cross_entropy(logits[answers], tokens[:, 1:][answers], reduction="sum")
        return lost * (float(part["scale"][0]) / len(tokens))


def _items(name: str, stream: Ids, context: int) -> list[Ids]:
    """Return a list of a stream's items, ids [tokens]. Raises DataError for one beyond a window."""
    items = np.split(stream, ends(stream)[:-1])
    longest = max(map(len, items))
    if longest > context + 1:
        raise DataError(
            f"an item of {name} has {longest} tokens: it needs a context of {longest - 1} at least, "
            f"and the context is {context}."
        )
    return items
