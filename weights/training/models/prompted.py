"""Predictions of a model along trajectories, and the divergence between two models' predictions.

A reply of n tokens has n predictions: the first one is made at the beginning's last token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from agent_forge.weights.training.windows import Ids

#: Ids [rows, tokens] int64 → logits [rows, tokens, vocabulary].
Predict = Callable[[torch.Tensor], torch.Tensor]


def rows(beginnings: Sequence[Ids], replies: Sequence[Ids]) -> torch.Tensor:
    """Return each beginning with its reply, padded with 0 on the right, [rows, width] int64.

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
    """Return log p at all replies' tokens, row after row, [tokens, vocabulary] of `dtype`.

    `logits` are [rows, width, vocabulary]; `starts` are the lengths of the beginnings in tokens,
    `sizes` those of the replies.
    """
    reply_logits = [
        logits[row, start - 1 : start - 1 + size]
        for row, (start, size) in enumerate(zip(starts, sizes, strict=True))
    ]
    return torch.cat(reply_logits).to(dtype).log_softmax(-1)


def along(
    predict: Predict, beginning: Ids, reply: Ids, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Return log p at each token of a reply after its beginning, [tokens, vocabulary] of `dtype`.

    The model reads this trajectory in a batch of one, so the bits do not depend on other trajectories.
    """
    logits = predict(rows([beginning], [reply]))
    return at_replies(logits, [len(beginning)], [len(reply)], dtype)


def divergences(teacher_logs: torch.Tensor, model_logs: torch.Tensor) -> torch.Tensor:
    """Return KL(teacher ‖ model) at each token, nats, [tokens], of log p [tokens, outcomes] of both."""
    return (teacher_logs.exp() * (teacher_logs - model_logs)).sum(-1)


def likely(teacher_logs: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (ids [tokens, count] int64, log p [tokens, count + 1]) of the `count` likeliest tokens.

    `teacher_logs` are [tokens, vocabulary]. The last log p is that of all other tokens together.
    """
    top = teacher_logs.topk(count, sorted=True)
    return top.indices, torch.cat([top.values, _rest(top.values)], -1)


def of_likely(model_logs: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return log p of the tokens `ids`, and last of all others together, [tokens, count + 1]."""
    values = model_logs.gather(-1, ids)
    return torch.cat([values, _rest(values)], -1)


def _rest(values: torch.Tensor) -> torch.Tensor:
    """Return log(1 − Σ p) of the log-probabilities `values`, [tokens, 1], at least log ε."""
    tiny = torch.finfo(values.dtype).eps
    return (1 - values.exp().sum(-1, keepdim=True)).clamp_min(tiny).log()
