"""Log-likelihoods of continuations, with each prompt read once.

The prompts of a batch are padded on the left and read into a key-value cache; their continuations
are read with this cache. Only the logits of a prompt's last position are computed, and a
continuation of one token needs no more than those. Architectures that keep another kind of state,
or take no positions, read prompt and continuation together instead.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from evaluation.backends.backend import BATCH_TOKENS, LocalModel, batches
from evaluation.data.packing import Ids

#: Lengths are padded to a multiple of this, so that few shapes occur.
PAD_TO = 16

Floats = NDArray[np.float32]


def continuations(model: LocalModel, pairs: Sequence[tuple[Ids, Ids]]) -> list[Floats]:
    """Return −log p of every token of each continuation, [its length] float32, nats."""
    if not shareable(model.module):
        whole = model.losses([np.concatenate(pair) for pair in pairs], PAD_TO)
        return [losses[len(p) - 1 :] for (p, _), (losses, _) in zip(pairs, whole, strict=True)]
    members: dict[bytes, list[int]] = {}
    for place, (prompt, _) in enumerate(pairs):
        members.setdefault(prompt.tobytes(), []).append(place)
    prompts = [pairs[places[0]][0] for places in members.values()]
    following = list(members.values())
    losses_by_place: dict[int, Floats] = {}

    def rows(length: int) -> int:  # few logits are computed: the vocabulary does not count
        return max(1, (model.batch_tokens or BATCH_TOKENS) // length)

    for length, chosen in batches(prompts, rows, PAD_TO, model.positions):
        batch = [(prompts[i], [(n, pairs[n][1]) for n in following[i]]) for i in chosen]
        losses_by_place |= _batch(model, length, batch)
    return [losses_by_place[place] for place in range(len(pairs))]


def shareable(module: Any) -> bool:
    """Return True if the module's prompts can be read once, with a key-value cache."""
    taken = inspect.signature(module.forward).parameters
    needed = {"attention_mask", "position_ids", "logits_to_keep"}
    named = cache_name(module) in taken
    return named and needed <= set(taken) and not getattr(module, "_is_stateful", False)


def cache_name(module: Any) -> str:
    """Return the name of the key-value cache in the module's forward pass and in its output.

    transformers 5.24 renamed `past_key_values` to `cache`.
    """
    return "cache" if "cache" in inspect.signature(module.forward).parameters else "past_key_values"


#: A prompt, and (place, continuation) of all its continuations.
_Asked = tuple[Ids, list[tuple[int, Ids]]]


@torch.inference_mode()
def _batch(model: LocalModel, length: int, prompts: Sequence[_Asked]) -> dict[int, Floats]:
    """Return place → −log p for all continuations of one batch of prompts, padded to `length`."""
    ids = torch.zeros((len(prompts), length), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, (prompt, _) in enumerate(prompts):
        ids[row, length - len(prompt) :] = torch.from_numpy(prompt)
        mask[row, length - len(prompt) :] = 1
    read = _forward(model, ids, mask, None, 1)
    first = F.log_softmax(read.logits[:, -1].float(), dim=-1).cpu()
    flat = [(row, n, after) for row, (_, all_) in enumerate(prompts) for n, after in all_]
    losses_by_place = {n: -first[row, after[:1]].numpy() for row, n, after in flat}
    longer = [(row, n, after) for row, n, after in flat if len(after) > 1]
    lengths = [after[1:] for _, _, after in longer]
    for width, places in batches(lengths, lambda width: min(len(prompts), model.rows(width))):
        group = [longer[place] for place in places]
        rows = torch.tensor([row for row, _, _ in group])
        tokens = torch.from_numpy(np.stack([after for _, _, after in group]))
        wide_mask = torch.cat(
            [mask[rows], torch.ones((len(group), width), dtype=torch.int64)], dim=1
        )
        cache = _selected(getattr(read, cache_name(model.module)), rows.to(model.device))
        logits = _forward(model, tokens[:, :-1], wide_mask, cache, 0).logits.float()
        targets = tokens[:, 1:].to(model.device)
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        for (_, n, _), rest in zip(group, losses.view_as(targets).cpu().numpy(), strict=True):
            losses_by_place[n] = np.concatenate([losses_by_place[n], rest])
    return losses_by_place


def _forward(
    model: LocalModel, ids: torch.Tensor, mask: torch.Tensor, cache: Any, keep: int
) -> Any:
    """Run a forward pass over `ids`, after the cached tokens; `mask` covers both."""
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -ids.shape[1] :]
    return model.module(
        input_ids=ids.to(model.device),
        attention_mask=mask.to(model.device),
        position_ids=positions.to(model.device),
        use_cache=True,
        logits_to_keep=keep,
        **{cache_name(model.module): cache},
    )


def _selected(cache: Any, rows: torch.Tensor) -> Any:
    """Return a copy of the cache with these rows; a row may be taken several times."""
    selection = copy.copy(cache)
    selection.layers = [copy.copy(layer) for layer in cache.layers]
    selection.batch_select_indices(rows)
    return selection
