"""Objective `reinforce`: replies that the model samples, rewarded by a check of the answer.

    J = E [r(y)] − kl · E [Σ_t KL(π(· | x, y_<t) ‖ π_ref(· | x, y_<t))],   r = 1 if y is right, else −1

as in Transformer-Squared (arXiv 2501.06252, section 3.2). Its gradient is estimated by REINFORCE
(Williams 1992) from one reply to each of a step's prompts:

    (1/N) Σ_i (r_i − b_i) Σ_t ∇ log π(y_it)

b_i is the mean reward of the step's other replies, which leaves the estimate unbiased, or 0 as in the
paper. The divergence is exact in every state that a reply goes through. Its effect on which states are
reached is left out, as in the paper's program.

A stream of data has the form of `answers`. So a reply is right if it has the tokens of the answer and
then the end token: the check of `exact-answers`. A reply is sampled token by token from keys with the
step and the row, with the weights before the step; it ends with the end token, or two tokens beyond the
longest answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch.nn.utils import parametrize

from agent_forge.runs.errors import ConfigError, DataError
from agent_forge.weights import randomness
from agent_forge.weights.recipes import Frozen, Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.models import prompted
from agent_forge.weights.training.models.modules import Teacher
from agent_forge.weights.training.objectives import Batch
from agent_forge.weights.training.objectives.answers import ends
from agent_forge.weights.training.objectives.next_token import Stateless, check_inputs, check_streams
from agent_forge.weights.training.windows import Ids, drawn

#: Role of the model from which the trained model must not diverge.
REFERENCE = "reference"
#: Tokens that a reply may have beyond the longest right answer.
SPARE = 2


class ReinforceParams(Frozen):
    """Parameters of the objective."""

    #: Weight of the divergence from the reference, in rewards a nat; 0: there is no reference.
    kl: float = Field(default=0.1, ge=0)
    #: True if the mean reward of a step's other replies is subtracted from each reward.
    baseline: bool = True


class Reinforce(Stateless):
    """Objective: the reward of sampled replies; the loss is −J of them, with REINFORCE's gradient."""

    Params = ReinforceParams

    def __init__(
        self,
        recipe: Train,
        module: torch.nn.Module,
        streams: Mapping[str, Ids],
        inputs: Mapping[str, Tensors],
    ) -> None:
        """Check streams and inputs, and build the reference.

        Raises ConfigError for missing streams and for other inputs, SourceChangedError for other data,
        DataError for an item that with its reply is longer than the context.
        """
        self._params = ReinforceParams.model_validate(recipe.params)
        check_inputs("reinforce", [REFERENCE] if self._params.kl else [], recipe, inputs)
        if recipe.batch < 2 and self._params.baseline:
            raise ConfigError("a baseline is the mean of other replies: a batch needs two")
        check_streams("reinforce", recipe, streams)
        self._module, self._recipe = module, recipe
        self._device = next(module.parameters()).device
        names = sorted(recipe.data)
        self._items = [_items(name, streams[name], recipe.context) for name in names]
        shares = np.asarray([recipe.data[name] for name in names])
        self._edges = np.cumsum(shares / shares.sum())
        every = [pair for pairs in self._items for pair in pairs]
        self._limit = max(len(answer) for _, answer in every) + SPARE
        self._end = _end(every)
        self._reference = None
        if self._params.kl:
            self._reference = Teacher(inputs[REFERENCE], self._device, recipe)
        self.tokens = recipe.batch * recipe.context

    def batch(self, step: int) -> Batch:
        """Return a step's rows by name: prompts by key, and replies sampled with the present weights.

        "tokens": [batch, width] int64, prompt and reply, 0 after both; "starts" and "sizes": [batch],
        lengths of prompt and reply in tokens; "rewards" and "gains": [batch] float32, 1 or −1, and
        that minus the baseline.
        """
        items = drawn(self._recipe, step, self._edges, self._items)
        chosen = [next(items) for _ in range(self._recipe.batch)]
        replies = self._replies([prompt for prompt, _ in chosen], step)
        right = [
            len(reply) == len(answer) and bool((reply == answer).all())
            for reply, (_, answer) in zip(replies, chosen, strict=True)
        ]
        rewards = torch.tensor([1.0 if correct else -1.0 for correct in right])
        gains, count = rewards, len(right)
        if self._params.baseline:
            gains = rewards - (rewards.sum() - rewards) / (count - 1)
        return {
            "tokens": prompted.rows([prompt for prompt, _ in chosen], replies),
            "starts": torch.tensor([len(prompt) for prompt, _ in chosen]),
            "sizes": torch.tensor([len(reply) for reply in replies]),
            "rewards": rewards,
            "gains": gains,
        }

    @torch.no_grad()
    def _replies(self, prompts: list[Ids], step: int) -> list[Ids]:
        """Return a sampled reply to each prompt, ids [1 to `limit`], with the end token if finished."""
        recipe, rows = self._recipe, torch.arange(len(prompts))
        key = (recipe.seed, recipe.purpose, step, "reply")
        places = torch.from_numpy(
            np.stack([randomness.uniform(self._limit, *key, row) for row in range(len(prompts))])
        )
        starts = torch.tensor([len(prompt) for prompt in prompts])
        tokens = prompted.rows(prompts, [np.zeros(self._limit, np.int32)] * len(prompts))
        living = torch.ones(len(prompts), dtype=torch.bool)
        sizes = torch.zeros(len(prompts), dtype=torch.int64)
        with parametrize.cached():
            for at in range(self._limit):
                width = int(starts[living].max()) + at
                logits = self._module(input_ids=tokens[living, :width].to(self._device)).logits
                indices = torch.arange(int(living.sum()))
                last = logits[indices, starts[living] + at - 1].to("cpu", torch.float64)
                samples = _sampled(last, places[living, at])
                tokens[rows[living], starts[living] + at] = samples
                sizes[living] += 1
                living[rows[living][samples == self._end]] = False
                if not living.any():
                    break
        return [
            row[start : start + size].numpy().astype(np.int32)
            for row, start, size in zip(tokens, starts.tolist(), sizes.tolist(), strict=True)
        ]

    def loss(self, part: Batch) -> torch.Tensor:
        """Return −(mean reward − kl · mean divergence), a scalar with REINFORCE's gradient."""
        tokens = part["tokens"].to(self._device)
        starts, sizes = part["starts"].tolist(), part["sizes"].tolist()
        logits = self._module(input_ids=tokens[:, :-1]).logits
        model_logs = prompted.at_replies(logits, starts, sizes)
        reply_tokens = torch.cat(
            [tokens[row, a : a + n] for row, (a, n) in enumerate(zip(starts, sizes, strict=True))]
        )
        counts = part["sizes"].to(self._device)
        gains = part["gains"].to(self._device).repeat_interleave(counts)
        chosen = model_logs.gather(1, reply_tokens[:, None])[:, 0]
        surrogate = -(gains * chosen).sum() / len(tokens)
        loss = surrogate - surrogate.detach() - part["rewards"].to(self._device).mean()
        if self._reference is None:
            return loss
        reference_logs = prompted.at_replies(self._reference.logits(tokens[:, :-1]), starts, sizes)
        apart = prompted.divergences(model_logs, reference_logs).sum() / len(tokens)
        return loss + self._params.kl * apart


def _sampled(logits: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return a token id for each row, [rows] int64, by places in (0, 1) of its distribution."""
    whole = logits.softmax(-1).cumsum(-1)
    indices = (whole <= places[:, None] * whole[:, -1:]).sum(-1)
    return indices.clamp_max(whole.shape[1] - 1)


def width(stream: Ids) -> int:
    """Return the most tokens that a prompt of a stream and a reply to it can have together."""
    return _longest(_pairs(stream))


def _longest(items: Sequence[tuple[Ids, Ids]]) -> int:
    return max(len(prompt) for prompt, _ in items) + max(len(a) for _, a in items) + SPARE


def _pairs(stream: Ids) -> list[tuple[Ids, Ids]]:
    """Return a list of (prompt, answer), ids [tokens] int32 each, one for each item of a stream."""
    pairs = []
    for item in np.split(stream, ends(stream)[:-1]):
        size = int((item >= 0).sum())
        pairs.append((item[:size], -1 - item[size:]))
    return pairs


def _items(name: str, stream: Ids, context: int) -> list[tuple[Ids, Ids]]:
    """Return a list of (prompt, answer), one an item. Raises DataError for one beyond a window."""
    pairs = _pairs(stream)
    longest = _longest(pairs)
    if longest > context:
        raise DataError(
            f"an item of {name} and its reply may have {longest} tokens, the context is {context}."
        )
    return pairs


def _end(items: list[tuple[Ids, Any]]) -> int:
    """Return the id of the token that ends all answers. Raises DataError if there are several."""
    end_tokens = {int(answer[-1]) for _, answer in items}
    if len(end_tokens) > 1:
        raise DataError("answers end with different tokens: a reply cannot be told to have ended")
    return end_tokens.pop()
