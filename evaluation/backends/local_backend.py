"""Resident model: one model object per architecture, into which candidates' weights are swapped.

Parameters are pointed at the candidate's tensors; nothing is instantiated again or copied.

To score continuations, each prompt is read once. The prompts of a batch are padded on the left and
read into a key-value cache, with which their continuations are read. Only the logits of a prompt's
last position are computed; a continuation of one token needs no others. Architectures that keep
another kind of state, or take no positions, read prompt and continuation together instead.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F
from transformers import (
    Cache,
    DynamicCache,
    LogitsProcessor,
    PreTrainedConfig,
    PreTrainedModel,
    StoppingCriteria,
)

from agent_forge.evaluation.backends import inductor
from agent_forge.evaluation.backends.backend import (
    BATCH_TOKENS,
    Losses,
    batches,
    mixed_batches,
    rows_per_batch,
)
from agent_forge.evaluation.backends.generation import end_tokens, replies
from agent_forge.evaluation.data.packing import Ids, PackedProblem
from agent_forge.runs.errors import SourceError
from agent_forge.weights import block_names, pieces
from agent_forge.weights.folders import model_config
from agent_forge.weights.folders.parameters import fill, fill_buffers
from agent_forge.weights.folders.vocabularies import Tokenizer
from agent_forge.weights.threads import keep_freed_memory


class ResidentModel:
    """A causal language model in evaluation mode whose weights can be replaced."""

    #: Tokens of one forward pass; None: as `backend.rows_per_batch` chooses.
    batch_tokens: int | None = None
    #: The dtype in which floating-point weights are computed; None: their own.
    dtype: torch.dtype | None = None
    #: True if continuations of all lengths share forward passes; False: those of one length do, as in
    #: runs that were started before. The bits differ, so a run pins it (its `started.together`).
    together = True
    #: True if a pass writes as many replies as its tokens allow; False: fewer if the vocabulary is
    #: large, as in runs that were started before. It makes logits of one token each. A run pins it.
    many_replies = True
    #: The shape [rows, length] of compiled passes, for the model's own number of blocks only;
    #: None: no pass is compiled.
    compiled: tuple[int, int] | None = None

    def __init__(self, folder: Path, device: str, tied: bool) -> None:
        """Build the architecture of the model folder `folder` (its weights are not read)."""
        keep_freed_memory(True)  # each pass takes that of the one before
        config = model_config.load(folder)
        config.tie_word_embeddings = tied
        config.use_cache = False
        self.device = torch.device(device)
        self.config = config
        self.folder = folder
        self.module: PreTrainedModel = self._empty(config)
        #: The module with as many blocks as the folder's model.
        self._whole = self.module
        self.vocabulary = int(config.get_text_config().vocab_size)
        #: Number of blocks → module: each path through layers of another length has its own module.
        self._modules: dict[int, PreTrainedModel] = {
            int(config.get_text_config().num_hidden_layers): self.module
        }

    @classmethod
    def from_module(cls, module: PreTrainedModel) -> ResidentModel:
        """Return a ResidentModel around an existing module, on the module's own device.

        Weights that are loaded into it are computed in the dtype that the module has now.
        """
        model = cls.__new__(cls)
        model.dtype = next(module.parameters()).dtype
        model.module = model._whole = module.eval()
        model.config = module.config
        model.device = next(module.parameters()).device
        model.vocabulary = int(module.config.get_text_config().vocab_size)
        return model

    def _empty(self, config: PreTrainedConfig) -> PreTrainedModel:
        """Return a module without weights, but with its buffers."""
        module = model_config.empty(self.folder, config)
        fill_buffers(module, self.device)
        return module.eval()

    def load(self, weights: Mapping[str, torch.Tensor], blocks: int | None = None) -> None:
        """Point every parameter at its tensor. Raises SourceError if names do not match.

        `blocks`: the number of blocks, if a path through layers gave the model another number than
        the folder's model has.
        """
        self._choose_module(blocks)
        filled = fill(self.module, weights)
        parameters = dict(self.module.named_parameters())
        missing = sorted(set(parameters) - set(filled.tensors))
        if missing or filled.unexpected:
            raise SourceError(
                f"the model's tensors do not fit its config.json: missing {missing[:3]}, "
                f"unexpected {list(filled.unexpected[:3])}"
            )
        with torch.no_grad():
            for name, tensor in filled.tensors.items():
                parent, _, leaf = name.rpartition(".")
                module = self.module.get_submodule(parent)
                placed = tensor.to(self.device, self.dtype)
                if name in parameters:
                    module._parameters[leaf] = torch.nn.Parameter(placed, requires_grad=False)
                elif leaf in module._buffers:
                    module._buffers[leaf] = placed
        self.module.tie_weights()

    def _choose_module(self, blocks: int | None) -> None:
        modules = getattr(self, "_modules", {})
        blocks = blocks or next(iter(modules), None)
        if blocks is None:
            return
        if blocks not in modules:
            settings = self.config.to_dict()
            changed = block_names.with_blocks(settings, [(settings, 0)] * blocks)
            modules[blocks] = self._empty(type(self.config).from_dict(changed))
        if modules[blocks] is not self.module:
            self._free_weights()
            self.module = modules[blocks]

    def _free_weights(self) -> None:
        """Move the module's weights to the meta device to free memory; tied ones stay tied."""
        emptied: dict[int, torch.nn.Parameter] = {}
        for module in self.module.modules():
            for leaf, tensor in module._parameters.items():
                if tensor is not None and id(tensor) not in emptied:
                    bare = torch.nn.Parameter(tensor.to("meta"), requires_grad=False)
                    emptied[id(tensor)] = emptied[id(bare)] = bare
                if tensor is not None:
                    module._parameters[leaf] = emptied[id(tensor)]

    def rows(self, length: int) -> int:
        """Return the number of sequences of `length` tokens in one forward pass."""
        return rows_per_batch(length, self.vocabulary, self.batch_tokens)

    @property
    def positions(self) -> int | None:
        """The longest sequence that the architecture takes; None if its config does not say."""
        limit = getattr(self.config.get_text_config(), "max_position_embeddings", None)
        return int(limit) if limit else None

    @torch.inference_mode()
    def logits(self, ids: torch.Tensor) -> torch.Tensor:
        """Return [batch, length, vocabulary] logits, in the model's dtype, of [batch, length] ids."""
        return self.module(input_ids=ids.to(self.device), use_cache=False).logits

    @torch.inference_mode()
    def losses(self, sequences: Sequence[Ids], pad: int = 1) -> list[Losses]:
        """Return per sequence (−log p, True if likeliest) of every token but the first.

        `pad`: sequences are padded on the right to a length that is a multiple of it, so that more
        of them share a forward pass. Causal attention does not see this padding.
        """
        sequence_losses: list[Losses | None] = [None] * len(sequences)
        passes = list(batches(sequences, self.rows, pad, self.positions))

        def work(number: int) -> pieces.Tensors:
            length, places = passes[number]
            ids = np.zeros((len(places), length), np.int64)
            for row, place in enumerate(places):
                ids[row, : len(sequences[place])] = sequences[place]
            losses, best = self.token_losses(torch.from_numpy(ids))
            return {"losses": torch.from_numpy(losses), "best": torch.from_numpy(best)}

        for (_, places), read in zip(passes, pieces.each(len(passes), work), strict=True):
            losses, best = read["losses"].numpy(), read["best"].numpy()
            for row, place in enumerate(places):
                last = len(sequences[place]) - 1
                sequence_losses[place] = losses[row, :last], best[row, :last]
        return [each for each in sequence_losses if each is not None]

    @torch.inference_mode()
    def token_losses(self, ids: torch.Tensor) -> Losses:
        """Return (−log p float32, True if likeliest), both [batch, length − 1], of int64 `ids`."""
        ids = ids.to(self.device)
        if self.compiled == tuple(ids.shape) and self.module is self._whole:
            losses, best = self._scorer(ids)
        else:
            losses, best = scored(self.logits(ids), ids)
        return losses.cpu().numpy(), best.cpu().numpy()

    @cached_property
    def _scorer(self) -> inductor.Scorer:
        return inductor.scorer(self._whole)

    def continuations(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[NDArray[np.float32]]:
        """Return per pair −log p of its continuation's tokens, float32; every prompt is read once."""
        return continuations(self, pairs)

    def replies(self, problems: Sequence[PackedProblem], tokenizer: Tokenizer) -> list[str]:
        """Return the text of one greedy reply per problem, as `Evaluator` says."""
        rows = self.unbounded if self.many_replies else self.rows
        return replies(self.continued, rows, end_tokens(self.config, tokenizer), problems, tokenizer)

    def unbounded(self, length: int) -> int:
        """Return the number of sequences in a pass that makes few logits: any vocabulary will do."""
        return max(1, (self.batch_tokens or BATCH_TOKENS) // length)

    @torch.inference_mode()
    def continued(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        limit: int,
        until: StoppingCriteria,
        choose: LogitsProcessor | None = None,
    ) -> torch.Tensor:
        """Return the most likely next tokens, [batch, at most `limit`] int64 on the CPU.

        `ids` are [batch, length] int64, padded on the left where `mask` is 0. `until` is a
        transformers StoppingCriteria, `choose` a LogitsProcessor that changes the scores by which the
        tokens are likely. The model folder's sampling settings are ignored.
        """
        from transformers import GenerationConfig, LogitsProcessorList

        how = GenerationConfig(
            do_sample=False, max_new_tokens=limit, use_cache=True, pad_token_id=0, eos_token_id=None
        )
        generate: Any = self.module.generate  # its types want a mixin
        tokens = generate(
            input_ids=ids.to(self.device),
            attention_mask=mask.to(self.device),
            generation_config=how,
            stopping_criteria=[until],
            logits_processor=LogitsProcessorList([] if choose is None else [choose]),
        )
        return tokens[:, ids.shape[1] :].cpu()


#: Logits that `scored` holds in float32 at once: 16 MiB, which the allocator takes again for the next
#: ones, where the system would have to clear the pages of a larger piece each time.
LOGITS = 1 << 22


def scored(logits: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (−log p of each next token, True if it is the likeliest), both [batch, length − 1].

    `logits` are [batch, length, vocabulary] for the int64 `ids` [batch, length].
    """
    count = max(1, LOGITS // logits.shape[-1])
    targets = ids.flatten().roll(-1)  # of a sequence's last token: the next one's first, left out below
    losses = torch.empty(targets.shape, dtype=torch.float32, device=targets.device)
    best = torch.zeros_like(targets, dtype=torch.bool)
    for number, rows in enumerate(logits.flatten(0, 1).split(count)):
        chunk = slice(number * count, number * count + len(rows))
        wide, labels = rows.float(), targets[chunk]
        losses[chunk] = F.cross_entropy(wide, labels, reduction="none")
        # The place of a maximum takes many times as long as the maximum, and most rows need none.
        surpassed = wide.gather(1, labels[:, None])[:, 0] < wide.amax(dim=-1)
        candidates = (~surpassed).nonzero()[:, 0]
        best[chunk][candidates] = wide[candidates].argmax(dim=-1) == labels[candidates]
    return losses.view_as(ids)[:, :-1], best.view_as(ids)[:, :-1]


#: Lengths are padded to a multiple of this, so that few shapes occur.
PAD_TO = 16

Floats = NDArray[np.float32]


def continuations(model: ResidentModel, pairs: Sequence[tuple[Ids, Ids]]) -> list[Floats]:
    """Return per pair −log p of each token of its continuation: [its length] float32, nats."""
    if not shareable(model.module):
        whole = model.losses([np.concatenate(pair) for pair in pairs], PAD_TO)
        return [losses[len(p) - 1 :] for (p, _), (losses, _) in zip(pairs, whole, strict=True)]
    members: dict[bytes, list[int]] = {}
    for place, (prompt, _) in enumerate(pairs):
        members.setdefault(prompt.tobytes(), []).append(place)
    prompts = [pairs[places[0]][0] for places in members.values()]
    following = list(members.values())

    divide = mixed_batches if model.together else batches
    passes = list(divide(prompts, model.unbounded, PAD_TO, model.positions))

    def work(number: int) -> pieces.Tensors:
        length, chosen = passes[number]
        batch = [(prompts[i], [(n, pairs[n][1]) for n in following[i]]) for i in chosen]
        losses = _batch(model, length, batch)
        return {str(place): torch.from_numpy(losses[place]) for place in losses}

    losses_by_place = {
        int(place): losses.numpy()
        for read in pieces.each(len(passes), work)
        for place, losses in read.items()
    }
    return [losses_by_place[place] for place in range(len(pairs))]


def shareable(module: PreTrainedModel) -> bool:
    """Return True if the module's prompts can be read once, with a key-value cache."""
    taken = inspect.signature(module.forward).parameters
    needed = {"attention_mask", "position_ids", "logits_to_keep"}
    named = cache_name(module) in taken
    return named and needed <= set(taken) and not getattr(module, "_is_stateful", False)


def cache_name(module: PreTrainedModel) -> str:
    """Return the name of the key-value cache in the module's forward pass and in its output.

    transformers 5.24 renamed `past_key_values` to `cache`.
    """
    return "cache" if "cache" in inspect.signature(module.forward).parameters else "past_key_values"


#: A prompt, and (place, continuation) of all its continuations.
_Asked = tuple[Ids, list[tuple[int, Ids]]]


@torch.inference_mode()
def _batch(model: ResidentModel, length: int, prompts: Sequence[_Asked]) -> dict[int, Floats]:
    """Return {place: −log p of its tokens} of all continuations of prompts padded to `length`."""
    ids = torch.zeros((len(prompts), length), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, (prompt, _) in enumerate(prompts):
        ids[row, length - len(prompt) :] = torch.from_numpy(prompt)
        mask[row, length - len(prompt) :] = 1
    read = _forward(model, ids, mask, None, _last(model.module, length))
    first = F.log_softmax(read.logits[:, -1].float(), dim=-1).cpu()
    flat = [(row, n, after) for row, (_, all_) in enumerate(prompts) for n, after in all_]
    losses_by_place = {n: -first[row, after[:1]].numpy() for row, n, after in flat}
    longer = [(row, n, after) for row, n, after in flat if len(after) > 1]
    rests = [after[1:] for _, _, after in longer]
    if model.together:
        limit = model.batch_tokens or BATCH_TOKENS  # the selected cache has a row for each continuation
        groups = mixed_batches(rests, lambda width: min(limit // (length + width), model.rows(width)))
    else:
        groups = batches(rests, lambda width: min(len(prompts), model.rows(width)))
    for width, places in groups:
        group = [longer[place] for place in places]
        rows = torch.tensor([row for row, _, _ in group])
        tokens = torch.zeros((len(group), width + 1), dtype=torch.int64)
        for at, (_, _, after) in enumerate(group):
            tokens[at, : len(after)] = torch.from_numpy(after)
        wide_mask = torch.cat([mask[rows], torch.ones((len(group), width), dtype=torch.int64)], dim=1)
        cache = _selected(getattr(read, cache_name(model.module)), rows.to(model.device))
        logits = _forward(model, tokens[:, :-1], wide_mask, cache, 0).logits.float()
        targets = tokens[:, 1:].to(model.device)
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        for (_, n, after), rest in zip(group, losses.view_as(targets).cpu().numpy(), strict=True):
            losses_by_place[n] = np.concatenate([losses_by_place[n], rest[: len(after) - 1]])
    return losses_by_place


def _last(module: PreTrainedModel, length: int) -> int | torch.Tensor:
    """Return the last of `length` positions, as `logits_to_keep` takes it.

    On a CPU a slice of the hidden states makes torch copy the head's matrix for every prompt; their
    selection by an index does not, and gives the same bits in bfloat16 and float16. In float32 the
    products are added in another order: there, and on GPUs, recorded runs keep the slice.
    """
    weight = next(module.parameters())
    is_slice = weight.dtype == torch.float32 or weight.device.type != "cpu"
    return 1 if is_slice else torch.tensor([length - 1])


def _forward(
    model: ResidentModel,
    ids: torch.Tensor,
    mask: torch.Tensor,
    cache: Cache | None,
    keep: int | torch.Tensor,
) -> Any:
    """Return the module's output (logits, cache) for `ids` after the cache; `mask` covers both.

    `keep`: the number of last positions with logits (0: all), or the positions themselves.
    """
    last = None if model.positions is None else model.positions - 1  # of padding on the right
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0, max=last)[:, -ids.shape[1] :]
    return model.module(
        input_ids=ids.to(model.device),
        attention_mask=mask.to(model.device),
        position_ids=positions.to(model.device),
        use_cache=True,
        logits_to_keep=keep,
        **{cache_name(model.module): cache},
    )


def _selected(cache: DynamicCache, rows: torch.Tensor) -> DynamicCache:
    """Return a copy of the cache with these rows; a row may be taken several times."""
    selection = copy.copy(cache)
    selection.layers = [copy.copy(layer) for layer in cache.layers]
    selection.batch_select_indices(rows)
    return selection
