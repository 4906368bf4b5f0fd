"""Trajectories of a bake: contexts of its text, and the replies of the given model to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evaluation.backends.generation import end_tokens
from evaluation.backends.local_backend import ResidentModel
from evaluation.data.slices import Slice
from evaluation.training_text.kept_text import Text
from evaluation.trajectories import contexts
from evaluation.trajectories.contexts import Beginnings
from evaluation.trajectories.sampling import sample
from phases.bake import plan
from phases.bake.config import BakeConfig
from phases.bake.prompts import Stream, count
from runs.errors import DataError
from weights import randomness
from weights.training.trajectories import Trajectory
from weights.training.windows import Ids

#: Domain → contexts.
Pools = Mapping[str, Sequence[Ids]]


def pools(text: Text, config: BakeConfig, slice_: Slice) -> Pools:
    """Return all contexts of a slice, by domain."""
    tokenizer, names = text.tokenizer, config.contexts
    if slice_ == "train":
        end = tokenizer.eos_token_id
        documents = {name: contexts.documents(text.streams[name], end) for name in names}
    else:
        documents = {name: _encoded(text, tokenizer, name, slice_) for name in names}
    return {name: contexts.pieces(some, config.context_tokens) for name, some in documents.items()}


def _encoded(text: Text, tokenizer: Any, domain: str, slice_: Slice) -> list[Ids]:
    """Return the token ids of a domain's texts in a slice."""
    said = [one.text for one in text.texts if (one.domain, one.slice) == (domain, slice_)]
    ids = tokenizer(said, add_special_tokens=False, verbose=False)["input_ids"] if said else []
    return [np.asarray(row, np.int32) for row in ids if row]


def counts(text: Text, config: BakeConfig) -> dict[str, int]:
    """Return slice → number of contexts."""
    slices: tuple[Slice, ...] = ("train", "selection", "test")
    return {one: sum(map(len, pools(text, config, one).values())) for one in slices}


def written(
    model: ResidentModel,
    text: Text,
    made: Beginnings,
    config: BakeConfig,
    streams: Mapping[str, Stream],
    tokens: int | None,
) -> dict[str, list[Trajectory]]:
    """Return stream → trajectories: the model's replies to contexts after prompts.

    `tokens` is `Started.pass_tokens`. A stream that has the replies of another comes after it. Raises
    DataError if no context leaves room for a reply.
    """
    found: dict[str, list[Trajectory]] = {}
    ends = end_tokens(model, text.tokenizer)
    for name, stream in streams.items():
        key = (config.seed, plan.PURPOSE)
        pool = pools(text, config, stream.slice)
        chosen = contexts.chosen(pool, count(config, stream), *key, stream.slice)
        if stream.after:
            chosen = after(text, config, stream, chosen)
        both = [_beginning(made, stream, n, one) for n, one in enumerate(chosen)]
        room = (model.positions or 1 << 62) - config.reply_tokens
        both = [one for one in both if max(map(len, one[1:])) <= room]
        if not both:
            raise DataError(f"no context of the slice {stream.slice} leaves room for a reply.")
        if stream.like:
            said = [one.reply for one in found[stream.like]]
        else:
            asked = [one[1] for one in both]
            said = sample(model, asked, config.reply_tokens, ends, *key, name, tokens=tokens)
        pairs = zip(both, said, strict=True)
        found[name] = [Trajectory(*beginning, reply) for beginning, reply in pairs]
    return found


def _beginning(made: Beginnings, stream: Stream, number: int, context: Ids) -> tuple[int, Ids, Ids]:
    """Return number of the prompts, and the writer's and the reader's beginning."""
    asked = number % len(stream.prompts)
    prompted = made.prompted(stream.prompts[asked], context)
    if stream.heard is None:
        return asked, prompted, prompted
    plain = made.prompted(stream.heard, context) if stream.heard else made.plain(context)
    return asked, prompted, plain


def after(text: Text, config: BakeConfig, stream: Stream, chosen: Sequence[Ids]) -> list[Ids]:
    """Return contexts after ordinary text of the same slice, `stream.after` tokens that end a line."""
    ordinary = [domain for domain in config.domains if domain not in config.contexts]
    tokenizer = text.tokenizer
    line = np.asarray(tokenizer.encode("\n", add_special_tokens=False), np.int32)
    documents = [ids for name in ordinary for ids in _encoded(text, tokenizer, name, stream.slice)]
    whole, size = np.concatenate(documents), max(0, stream.after - len(line))
    starts = randomness.permutation(max(1, len(whole) // max(1, size)), config.seed, "after")
    found = []
    for number, context in enumerate(chosen):
        start = int(starts[number % len(starts)]) * size
        before = whole.take(np.arange(start, start + size), mode="wrap")
        found.append(np.concatenate([before, line, context]).astype(np.int32))
    return found
