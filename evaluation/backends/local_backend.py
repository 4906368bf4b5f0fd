"""Resident model: one model object per architecture, into which candidates' weights are swapped.

Nothing is instantiated again or copied: parameters are pointed at the candidate's tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from evaluation.backends import inductor
from evaluation.backends.backend import Losses, batches, rows_per_batch
from evaluation.backends.continuations import continuations
from evaluation.backends.generation import replies
from evaluation.data.packing import Ids, Posed
from runs.errors import SourceError
from weights import block_names
from weights.folders import model_config
from weights.folders.parameters import fill, fill_buffers


class ResidentModel:
    """A causal language model in evaluation mode whose weights can be replaced."""

    #: Tokens of one forward pass; None: as `backend.rows_per_batch` chooses.
    batch_tokens: int | None = None
    #: The dtype in which floating-point weights are computed; None: their own.
    dtype: torch.dtype | None = None
    #: The shape [rows, length] of compiled passes, for the model's own number of blocks only;
    #: None: no pass is compiled.
    compiled: tuple[int, int] | None = None

    def __init__(self, folder: Path, device: str, tied: bool) -> None:
        """Build the architecture of the model folder `folder` (its weights are not read)."""
        config = model_config.load(folder)
        config.tie_word_embeddings = tied
        config.use_cache = False
        self.device = torch.device(device)
        self.config = config
        self.folder = folder
        self.module: Any = self._empty(config)
        #: The module with as many blocks as the folder's model.
        self._whole = self.module
        self.vocabulary = int(config.get_text_config().vocab_size)
        #: Number of blocks → module: each path through layers of another length has its own module.
        self._modules: dict[int, Any] = {
            int(config.get_text_config().num_hidden_layers): self.module
        }

    @classmethod
    def from_module(cls, module: Any) -> ResidentModel:
        """Wrap an existing module, on its own device.

        Weights that are loaded into it are computed in the dtype that the module has now.
        """
        model = cls.__new__(cls)
        model.dtype = next(module.parameters()).dtype
        model.module = model._whole = module.eval()
        model.config = module.config
        model.device = next(module.parameters()).device
        model.vocabulary = int(module.config.get_text_config().vocab_size)
        return model

    def _empty(self, config: Any) -> Any:
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
            self._let_go()
            self.module = modules[blocks]

    def _let_go(self) -> None:
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
        """Return how many sequences of `length` tokens go into one forward pass."""
        return rows_per_batch(length, self.vocabulary, self.batch_tokens)

    @property
    def positions(self) -> int | None:
        """The longest sequence that the architecture takes; None if its config does not say."""
        limit = getattr(self.config.get_text_config(), "max_position_embeddings", None)
        return int(limit) if limit else None

    @torch.inference_mode()
    def logits(self, ids: torch.Tensor) -> torch.Tensor:
        """Compute the logits of `ids`.

        [batch, length] int64 → [batch, length, vocabulary], in the model's dtype.
        """
        return self.module(input_ids=ids.to(self.device), use_cache=False).logits

    @torch.inference_mode()
    def losses(self, sequences: Sequence[Ids], pad: int = 1) -> list[Losses]:
        """Return the losses of every sequence, as `Evaluator` says.

        `pad`: sequences are padded on the right to a length that is a multiple of it, so that more
        of them share a forward pass. Causal attention does not see this padding.
        """
        sequence_losses: list[Losses | None] = [None] * len(sequences)
        for length, places in batches(sequences, self.rows, pad, self.positions):
            ids = np.zeros((len(places), length), np.int64)
            for row, place in enumerate(places):
                ids[row, : len(sequences[place])] = sequences[place]
            losses, best = self.token_losses(torch.from_numpy(ids))
            for row, place in enumerate(places):
                last = len(sequences[place]) - 1
                sequence_losses[place] = losses[row, :last], best[row, :last]
        return [each for each in sequence_losses if each is not None]

    @torch.inference_mode()
    def token_losses(self, ids: torch.Tensor) -> Losses:
        """Compute the losses of [batch, length] ids: −log p (float32), and True for each most
        likely token, both [batch, length − 1].
        """
        ids = ids.to(self.device)
        if self._is_compiled(ids):
            losses, best = self._scorer(ids)
        else:
            losses, best = inductor.scored(self.logits(ids), ids)
        return losses.cpu().numpy(), best.cpu().numpy()

    def _is_compiled(self, ids: torch.Tensor) -> bool:
        return self.compiled == tuple(ids.shape) and self.module is self._whole

    @cached_property
    def _scorer(self) -> inductor.Scorer:
        return inductor.scorer(self._whole)

    def continuations(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[NDArray[np.float32]]:
        """Return −log p of continuations, as `Evaluator` says; every prompt is read once."""
        return continuations(self, pairs)

    def replies(self, problems: Sequence[Posed], tokenizer: Any) -> list[str]:
        """Return greedy replies, as `Evaluator` says."""
        return replies(self, problems, tokenizer)

    @torch.inference_mode()
    def continued(
        self, ids: torch.Tensor, mask: torch.Tensor, limit: int, until: Any, choose: Any = None
    ) -> torch.Tensor:
        """Return the most likely next tokens, [batch, ≤ limit] int64 on the CPU.

        `ids` are [batch, length] int64, padded on the left where `mask` is 0. `until` is a
        transformers StoppingCriteria, `choose` a LogitsProcessor that changes the scores by which the
        tokens are likely. The model folder's sampling settings are ignored.
        """
        from transformers import GenerationConfig, LogitsProcessorList

        how = GenerationConfig(
            do_sample=False, max_new_tokens=limit, use_cache=True, pad_token_id=0, eos_token_id=None
        )
        tokens = self.module.generate(
            input_ids=ids.to(self.device),
            attention_mask=mask.to(self.device),
            generation_config=how,
            stopping_criteria=[until],
            logits_processor=LogitsProcessorList([] if choose is None else [choose]),
        )
        return tokens[:, ids.shape[1] :].cpu()
