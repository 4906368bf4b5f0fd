"""Sampling of replies by key (temperature 1, or greedy), and the divergence of two models along them.

A reply is a function of the model, the beginnings and a key. A token is drawn by inverting the
cumulative distribution at one random number, whose key holds the reply's number and the token's
place. So no reply depends on how many are drawn, nor, beyond the rounding of a forward pass, on the
replies that are computed with it. The rows of a pass are fixed, so that within a profile the bits are,
too. Divergence is in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LogitsProcessor, StoppingCriteria

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.weights import pieces, randomness
from agent_forge.weights.training.models import prompted
from agent_forge.weights.training.windows import Ids, Trajectory

#: (replies' numbers, tokens of their beginnings) → processor that chooses tokens; None: the likeliest.
Draw = Callable[[Sequence[int], int], "LogitsProcessor | None"]
#: Beginnings of a forward pass; fewer if they are long or the vocabulary is large.
ROWS = 32
#: Tokens of a forward pass, beginnings and replies: only the last token of each row has logits.
PASS_TOKENS = 4096


def sample(
    model: ResidentModel,
    beginnings: Sequence[Ids],
    limit: int,
    ends: Collection[int],
    *key: str | int,
    tokens: int | None = None,
) -> list[Ids]:
    """Return a list of replies to the beginnings: 1 to `limit` token ids, with the end token if ended.

    A forward pass has beginnings and replies of at most `tokens` tokens; None: as many as have room for
    the logits of all of them.
    """

    def drawing(numbers: Sequence[int], length: int) -> Drawing:
        places = np.stack([randomness.uniform(limit, *key, "reply", number) for number in numbers])
        return Drawing(places, length)

    return _replies(model, beginnings, limit, ends, drawing, tokens)


def greedy(
    model: ResidentModel,
    beginnings: Sequence[Ids],
    limit: int,
    ends: Collection[int],
    tokens: int | None = None,
) -> list[Ids]:
    """Return per beginning a reply whose tokens are each the likeliest, cut as `sample` does."""
    return _replies(model, beginnings, limit, ends, lambda numbers, length: None, tokens)


def rows_of_pass(model: ResidentModel, length: int, tokens: int | None) -> int:
    """Return how many beginnings, of `length` tokens with their replies, are in a forward pass."""
    return min(ROWS, model.rows(length) if tokens is None else max(1, tokens // length))


def _replies(
    model: ResidentModel,
    beginnings: Sequence[Ids],
    limit: int,
    ends: Collection[int],
    drawing: Draw,
    tokens: int | None,
) -> list[Ids]:
    """Return a list of the replies in the order of the beginnings; short ones are computed first."""
    passes: list[list[int]] = []
    order = sorted(range(len(beginnings)), key=lambda number: (len(beginnings[number]), number))
    while order:
        length = len(beginnings[order[min(ROWS, len(order)) - 1]])
        rows = rows_of_pass(model, length + limit, tokens)
        passes.append(order[:rows])
        order = order[rows:]

    def work(number: int) -> pieces.Tensors:
        chosen = passes[number]
        replies = _batch(model, [beginnings[n] for n in chosen], chosen, limit, ends, drawing)
        return {str(n): torch.from_numpy(ids) for n, ids in zip(chosen, replies, strict=True)}

    replies_by_number = {
        int(number): ids.numpy()
        for replied in pieces.each(len(passes), work)
        for number, ids in replied.items()
    }
    return [replies_by_number[number] for number in range(len(beginnings))]


def _batch(
    model: ResidentModel,
    beginnings: Sequence[Ids],
    numbers: Sequence[int],
    limit: int,
    ends: Collection[int],
    drawing: Draw,
) -> list[Ids]:
    """Return the replies to beginnings of one forward pass, padded on the left."""
    length = max(map(len, beginnings))
    ids = np.zeros((len(beginnings), length), np.int64)
    mask = np.zeros((len(beginnings), length), np.int64)
    for row, beginning in enumerate(beginnings):
        ids[row, length - len(beginning) :] = beginning
        mask[row, length - len(beginning) :] = 1
    ending, draw = _Ending(frozenset(ends), length), drawing(numbers, length)
    output = model.continued(torch.from_numpy(ids), torch.from_numpy(mask), limit, ending, draw)
    return [_cut(row, ends) for row in output.numpy().astype(np.int32)]


def _cut(reply: Ids, ends: Collection[int]) -> Ids:
    """Return a reply up to its first end token, that one included."""
    at = next((place for place, token in enumerate(reply.tolist()) if token in ends), len(reply))
    return reply[: at + 1]


class Drawing(LogitsProcessor):
    """Logits processor that leaves one token of each row: the one at a place of its distribution."""

    def __init__(self, places: NDArray[np.float64], length: int) -> None:
        """Take `places` in (0, 1), [rows, tokens], to draw by, after beginnings of `length` tokens."""
        self._places = torch.from_numpy(places)
        self._length = length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return scores [rows, vocabulary] that are 0 for the token drawn and −∞ for all others."""
        place = self._places[:, input_ids.shape[1] - self._length]
        whole = scores.to("cpu", torch.float64).softmax(-1).cumsum(-1)
        drawn = (whole <= place[:, None] * whole[:, -1:]).sum(-1).clamp_max(whole.shape[1] - 1)
        chosen = torch.full_like(scores, -torch.inf)
        return chosen.scatter_(1, drawn.to(scores.device)[:, None], 0.0)


class _Ending(StoppingCriteria):
    """Stopping criterion: each row ends at its first end token."""

    def __init__(self, ends: frozenset[int], length: int) -> None:
        self._ends = torch.tensor(sorted(ends), dtype=torch.int64)
        self._length = length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: object) -> torch.Tensor:
        tokens = input_ids[:, self._length :]
        return torch.isin(tokens, self._ends.to(tokens.device)).any(-1)


def along(
    writer: ResidentModel, reader: ResidentModel, trajectories: Sequence[Trajectory]
) -> list[float]:
    """Return for each trajectory Σ KL(writer ‖ reader) over its reply's tokens, in nats.

    The writer reads the prompted beginning, the reader the plain one; every trajectory is read alone.
    A divergence that rounding makes negative is 0.
    """

    def work(number: int) -> pieces.Tensors:
        nats = _one(writer, reader, trajectories[number])
        return {"nats": torch.tensor(nats, dtype=torch.float64)}

    return [max(0.0, float(read["nats"])) for read in pieces.each(len(trajectories), work)]


def _one(writer: ResidentModel, reader: ResidentModel, trajectory: Trajectory) -> float:
    double = torch.float64
    writer_logits = prompted.along(writer.logits, trajectory.prompted, trajectory.reply, double)
    reader_logits = prompted.along(reader.logits, trajectory.plain, trajectory.reply, double)
    return float(prompted.divergences(writer_logits, reader_logits).sum())
