"""Objective `sft`: supervised fine-tuning on the marked tokens of items, such as an assistant's turns.

A stream of data is a row of items (`windows.pack_items`), in which a token to learn is −1 − its id; or
running text, of which all tokens are learned. The stream whose share of the tokens read so far is least
is read next. Each epoch of a stream has every item once, in an order drawn by (seed, purpose, number of
the stream, epoch). A row is filled with whole items that do not see each other, as in `answers`; text
fills what is left of a row.

The loss of a step is the mean over its tokens to learn. Logits are computed at their places alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch

from agent_forge.runs.errors import DataError
from agent_forge.weights.recipes import Parameters, Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.objectives import Batch
from agent_forge.weights.training.objectives.answers import Answers, filled
from agent_forge.weights.training.objectives.next_token import check_inputs, check_streams
from agent_forge.weights.training.token_losses import token_losses
from agent_forge.weights.training.windows import Ids, seeded, unpack_items

#: Items that wait for a row in which they fit, at most.
WAITING = 8
#: Tokens of the shortest piece of text that fills the rest of a row.
SHORTEST = 16


class SftParams(Parameters):
    """Parameters of the objective."""

    #: Names of the streams that are running text.
    text: tuple[str, ...] = ()


class Sft(Answers):
    """Objective: the mean of −log p over the tokens to learn of a step, nats a token."""

    Params = SftParams

    def __init__(
        self,
        recipe: Train,
        module: torch.nn.Module,
        streams: Mapping[str, Ids],
        inputs: Mapping[str, Tensors],
    ) -> None:
        """Check the streams against the digests of the recipe.

        Raises ConfigError for missing streams or for inputs, SourceChangedError for other data,
        DataError for a stream without items, or an item that is longer than a window.
        """
        check_inputs("sft", (), recipe, inputs)
        check_streams("sft", recipe, streams)
        self._module, self._device = module, next(module.parameters()).device
        self._recipe, self.tokens = recipe, recipe.batch * recipe.context
        text = SftParams.model_validate(recipe.params).text
        self._text = [name in text for name in sorted(recipe.data)]
        total = math.fsum(recipe.data.values())
        self._shares = [recipe.data[name] / total for name in sorted(recipe.data)]
        width = recipe.context + 1
        self._items = [
            _pieces(name, streams[name], width) if is_text else _items(name, streams[name], width)
            for name, is_text in zip(sorted(recipe.data), self._text, strict=True)
        ]
        self._planned: list[list[Ids]] = []
        self._rows = self._plan()

    def batch(self, step: int) -> Batch:
        """Return {"tokens", "places", "answers", "scale"} → tensor, as `Answers.batch` does."""
        first, size = step * self._recipe.batch, self._recipe.batch
        while len(self._planned) < first + size:
            self._planned.append(next(self._rows))
        return filled(self._planned[first : first + size], self._recipe.context + 1)

    def loss(self, part: Batch) -> torch.Tensor:
        """Return scale · Σ −log p of the rows' tokens to learn / number of rows, a scalar."""
        tokens, answers = part["tokens"].to(self._device), part["answers"].to(self._device)
        places = part["places"].to(self._device)
        inputs = {"input_ids": tokens[:, :-1], "position_ids": places[:, :-1]}
        lost = token_losses(self._module, inputs, answers, tokens[:, 1:][answers]).sum()
        return lost * (float(part["scale"][0]) / len(tokens))

    def _plan(self) -> Iterator[list[Ids]]:
        """Yield the rows of all steps: lists of items."""
        width = self._recipe.context + 1
        orders = [self._order(number) for number in range(len(self._items))]
        read, waiting = [0] * len(orders), list[Ids]()
        row, room = list[Ids](), width
        while True:
            place = next((n for n, item in enumerate(waiting) if len(item) <= room), None)
            if place is None and len(waiting) < WAITING:
                number = min(range(len(orders)), key=lambda n: (read[n] / self._shares[n], n))
                item = next(orders[number])
                if self._text[number]:
                    item = item[: room if room >= SHORTEST else width]
                read[number] += len(item)
                waiting.append(item)
            elif place is not None:
                item = waiting.pop(place)
                row, room = [*row, item], room - len(item)
            if (row and room < SHORTEST) or (place is None and len(waiting) == WAITING):
                yield row
                row, room = [], width

    def _order(self, number: int) -> Iterator[Ids]:
        """Yield the items of a stream without end, each once an epoch."""
        items, epoch = self._items[number], 0
        while True:
            draws = seeded(self._recipe.seed, f"{self._recipe.purpose}/{number}/{epoch}")
            yield from (items[place] for place in draws.permutation(len(items)))
            epoch += 1


def _items(name: str, stream: Ids, width: int) -> list[Ids]:
    """Return a list of a stream's items. Raises DataError for none, or one beyond a window."""
    items = unpack_items(stream)
    longest = max(map(len, items), default=0)
    if not 0 < longest <= width:
        raise DataError(
            f"the longest item of {name} has {longest} tokens: a window of {width - 1} takes 1 to "
            f"{width}."
        )
    return items


def _pieces(name: str, stream: Ids, width: int) -> list[Ids]:
    """Return a list of the whole windows of a text; all tokens but the first of each are to learn."""
    if len(stream) < width:
        raise DataError(f"data {name!r} has {len(stream)} tokens: a window needs at least {width}.")
    windows = stream[: len(stream) // width * width].reshape(-1, width)
    marked = -1 - windows
    marked[:, 0] = windows[:, 0]
    return list(marked)
