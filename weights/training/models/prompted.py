"""Predictions of a model along trajectories, and the divergence between two models there.

A reply of n tokens has n predictions: the first is made by the beginning's last token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from agent_forge.weights.training.windows import Ids

#: Ids [rows, tokens] int64 → logits [rows, tokens, vocabulary].
Predict = Callable[[torch.Tensor], torch.Tensor]


def rows(beginnings: Sequence[Ids], replies: Sequence[Ids]) -> torch.Tensor:
    """Return [rows, width] int64: each beginning with its reply, padded with 0 on the right.

    A causal model does not see padding on the right.
    """
    width = max(len(a) + len(b) for a, b in zip(beginnings, replies, strict=True))
    tokens = np.zeros((len(replies), width), np.int64)
    for row, (beginning, reply) in enumerate(zip(beginnings, replies, strict=True)):
        tokens[row, : len(beginning)] = beginning
        tokens[row, len(beginning) : len(beginning) + len(reply)] = reply
    return torch.from_numpy(tokens)


def at_replies(
    logits: torch.Tensor,
    starts: Sequence[int],
    sizes: Sequence[int],
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Return log p of all replies' tokens one after the other, [tokens, vocabulary] of a dtype.

    `logits` are [rows, width, vocabulary]; `starts` are the tokens of the beginnings, `sizes` those of
    the replies.
    """
    reply_logits = [
        logits[row, start - 1 : start - 1 + size]
        for row, (start, size) in enumerate(zip(starts, sizes, strict=True))
    ]
    return torch.cat(reply_logits).to(dtype).log_softmax(-1)


def along(
    predict: Predict, beginning: Ids, reply: Ids, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Return log p after one beginning along its reply, [tokens, vocabulary] of a dtype.

    The model reads the trajectory alone, so the bits depend on nothing else.
    """
    logits = predict(rows([beginning], [reply]))
    return at_replies(logits, [len(beginning)], [len(reply)], dtype)


def divergences(teacher_logs: torch.Tensor, model_logs: torch.Tensor) -> torch.Tensor:
    """Return KL(wanted ‖ ours) of every token, nats, [tokens]; both are log p, [tokens, outcomes]."""
    return (teacher_logs.exp() * (teacher_logs - model_logs)).sum(-1)


def likely(teacher_logs: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ids of the `count` likeliest tokens, and log p of those and of all others together.

    [tokens, vocabulary] → [tokens, count] int64, [tokens, count + 1].
    """
    top = teacher_logs.topk(count, sorted=True)
    return top.indices, torch.cat([top.values, _rest(top.values)], -1)


def of_likely(model_logs: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return log p of the tokens `ids`, and of all others together, [tokens, count + 1]."""
    values = model_logs.gather(-1, ids)
    return torch.cat([values, _rest(values)], -1)


def _rest(values: torch.Tensor) -> torch.Tensor:
    """Return log of what is left of 1 beside some probabilities, [tokens, 1]; at least log ε."""
    tiny = torch.finfo(values.dtype).eps
    return (1 - values.exp().sum(-1, keepdim=True)).clamp_min(tiny).log()
