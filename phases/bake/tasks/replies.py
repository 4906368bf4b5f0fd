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
from phases.bake import plan, prompts
from phases.bake.config import BakeConfig
from runs.errors import DataError
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
    slices = dict.fromkeys(prompts.SLICES.values())
    return {one: sum(map(len, pools(text, config, one).values())) for one in slices}


def written(
    model: ResidentModel, text: Text, made: Beginnings, config: BakeConfig
) -> dict[str, list[Trajectory]]:
    """Return stream → trajectories: the model's replies to contexts after prompts.

    Raises DataError if no context leaves room for a reply.
    """
    found = {}
    for stream in prompts.streams(config):
        slice_ = prompts.SLICES[stream]
        count, key = prompts.count(config, stream), (config.seed, plan.PURPOSE)
        chosen = contexts.chosen(pools(text, config, slice_), count, *key, slice_)
        both = [_beginning(made, config, stream, n, one) for n, one in enumerate(chosen)]
        room = (model.positions or 1 << 62) - config.reply_tokens
        both = [one for one in both if max(map(len, one[1:])) <= room]
        if not both:
            raise DataError(f"no context of the slice {slice_} leaves room for a reply.")
        ends = end_tokens(model, text.tokenizer)
        said = sample(model, [one[1] for one in both], config.reply_tokens, ends, *key, stream)
        pairs = zip(both, said, strict=True)
        found[stream] = [Trajectory(*beginning, reply) for beginning, reply in pairs]
    return found


def _beginning(
    made: Beginnings, config: BakeConfig, stream: str, number: int, context: Ids
) -> tuple[int, Ids, Ids]:
    """Return number of the prompt, and the prompted and the plain beginning.

    Under other prompts both models read the prompt: the plain beginning has it, too.
    """
    others = prompts.others(config, stream)
    if not others:
        return 0, made.prompted(config.prompts, context), made.plain(context)
    asked = number % len(others)
    same = made.prompted([others[asked]], context)
    return asked, same, same
