"""Dreaming: a model's answers to tasks that it has passed, as streams that the objective reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from evaluation import task_families
from evaluation.answers import Encoded, encode, stream
from evaluation.backends.backend import LocalModel
from evaluation.task_families import item_sets
from evaluation.task_families.base import Item
from evaluation.trajectories import sampling
from phases.curriculum.dreams import Dream
from phases.curriculum.events import Dreamed, Dreamt
from phases.curriculum.recipes import PURPOSE
from phases.curriculum.settings import CurriculumConfig
from runs.errors import SourceChangedError
from weights import randomness
from weights.folders.checkpoint import digest
from weights.storage.weight_cache import Artifacts
from weights.training.objectives.answers import ends
from weights.training.windows import Ids, stream_digest

#: Tokens that an answer may have beyond the longest right one.
SPARE = 2
#: Cell → stream of items, and how many of them are right.
Written = Mapping[str, tuple[Ids, int]]


def written(
    model: LocalModel, tokenizer: Any, config: CurriculumConfig, task: Dream
) -> dict[str, tuple[Ids, int]]:
    """Return what a model dreams of each cell: its answers that came to an end.

    Prompts are drawn from the training items. A cell without such an answer is left out.
    """
    streams: dict[str, tuple[Ids, int]] = {}
    for cell in task.cells:
        family, _, level = cell.partition("/")
        pool = item_sets.items(family, int(level), config.seed, "train", config.pool)
        key = (PURPOSE, "dreams", config.seed, task.recipe_id, cell)
        order = randomness.permutation(len(pool), *key, "prompts")[: config.dream_items]
        sample = [pool[number] for number in sorted(order.tolist())]
        dreams, right = _answered(model, tokenizer, sample, key)
        if dreams:
            streams[cell] = stream(dreams), right
    return streams


def _answered(
    model: LocalModel, tokenizer: Any, items: Sequence[Item], key: tuple[str | int, ...]
) -> tuple[list[Encoded], int]:
    """Return items with the model's own answers in the place of the right ones, and how many are."""
    encoded = encode(tokenizer, items)
    limit = max(len(encoded_example.answer) for encoded_example in encoded) + SPARE
    beginnings = [np.asarray(encoded_example.prompt, np.int32) for encoded_example in encoded]
    end = tokenizer.eos_token_id
    replies = sampling.sample(model, beginnings, limit, (end,), *key)
    dreams, right = list[Encoded](), 0
    for item, example, reply in zip(items, encoded, replies, strict=True):
        if int(reply[-1]) == end and len(reply) > 1:
            dreams.append(Encoded(example.prompt, tuple(map(int, reply))))
            text = tokenizer.decode(reply[:-1], clean_up_tokenization_spaces=False)
            right += task_families.verify(item, text)
    return dreams, right


def answered(task: Dream, cache: Artifacts, write: Callable[[], Written]) -> Dreamed:
    """Let `write` dream, keep what it returns, and return the event."""
    began, dreams = time.monotonic(), write()
    tensors = {cell: torch.from_numpy(ids) for cell, (ids, _) in dreams.items()}
    seconds, name = time.monotonic() - began, digest(tensors)
    cache.keep(name, tensors, seconds)
    cells = {
        cell: Dreamt(digest=stream_digest(ids), items=_count(ids), right=right)
        for cell, (ids, right) in dreams.items()
    }
    return Dreamed(recipe_id=task.recipe_id, cells=cells, digest=name, seconds=seconds)


def _count(ids: Ids) -> int:
    """Return the number of items of a stream."""
    return len(ends(ids))


def kept(event: Dreamed, cache: Artifacts, write: Callable[[], Written]) -> dict[str, Ids]:
    """Return cell → stream of what was dreamt; `write` dreams again if the cache lacks it.

    Raises SourceChangedError if other dreams come out than those that are recorded.
    """
    streams = cache.get(event.digest)
    if streams is None:
        streams = {cell: torch.from_numpy(ids) for cell, (ids, _) in write().items()}
        if digest(streams) != event.digest:
            raise SourceChangedError(
                f"dreams dreamt again have the digest {digest(streams)[:12]}, the log says "
                f"{event.digest[:12]}."
            )
        cache.keep(event.digest, streams, event.seconds)
    return {cell: tensor.numpy() for cell, tensor in streams.items()}
