"""Language models whose blocks are carried out one after another, each with weights given for it.

One block's weights are in memory at a time. What a model gives its blocks beside the hidden states
(masks, positions) is recorded once for each shape of a batch, by a pass through the embedding in
which every block returns its input. Models that change the hidden states between blocks, or give
their blocks something that depends on the text, are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch

from agent_forge.runs.errors import ConfigError
from agent_forge.weights import block_names
from agent_forge.weights.folders.model_config import described
from agent_forge.weights.folders.parameters import fill, fill_buffers

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Batch of windows, int64 [windows, tokens].
Batch = torch.Tensor
_NUMBER = re.compile(r"^(.*?(?:layers|h|blocks)\.)(\d+)\.")


class _StopForward(Exception):
    """The first block was reached, and no more was asked for."""


class Blockwise:
    """Embedding and blocks of the causal language model that a config.json describes."""

    def __init__(
        self, config: Mapping[str, object], shapes: Mapping[str, tuple[int, ...]], device: torch.device
    ) -> None:
        """Build the model without weights, to compute on `device`.

        `shapes` are those of its folder's tensors. Raises ConfigError if its blocks cannot be carried
        out one by one, SourceError.
        """
        module = _on_meta(config)
        stored = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
        filled = fill(module, stored)
        if filled.packed:
            raise _refused("it packs the experts of a mixture when it is loaded")
        fill_buffers(module, device)
        inside = block_names.of_decoder(list(filled.renamed.values()))
        stems = {match[1] for name in inside if (match := _NUMBER.match(name))}
        if len(stems) != 1:
            raise _refused("its blocks are not in one list")
        (self._stem,) = stems
        self.count = block_names.count(inside)
        self._module = module
        #: Slot in the module → tensor's name in the folder.
        self._names = {slot: name for name, slot in filled.renamed.items()}
        #: Shape of a batch → what each block is given beside the hidden states.
        self._extras: dict[tuple[int, ...], list[tuple[tuple[object, ...], dict[str, object]]]] = {}
        self._tuples = False

    def names(self, number: int) -> dict[str, str]:
        """Return {parameter of a block: the tensor's name in the folder}."""
        stem = f"{self._stem}{number}."
        return {s.removeprefix(stem): n for s, n in self._names.items() if s.startswith(stem)}

    def linears(self, number: int) -> list[str]:
        """Return the names in the folder of a block's linear layers' matrices."""
        names, block = self.names(number), self._block(number)
        layers = [n for n, m in block.named_modules() if isinstance(m, torch.nn.Linear)]
        return [names[f"{layer}.weight"] for layer in layers if f"{layer}.weight" in names]

    def edges(self) -> dict[str, str]:
        """Return {slot: name in the folder} of the tensors outside of blocks, but the head."""
        stem = self._stem
        head = self._module.get_output_embeddings()
        heads = {n for n, p in self._module.named_parameters() if head and p is head.weight}
        embedding = self._module.get_input_embeddings().weight
        heads -= {n for n, p in self._module.named_parameters() if p is embedding}
        return {s: n for s, n in self._names.items() if not s.startswith(stem) and s not in heads}

    def block(self, number: int, weights: Mapping[str, torch.Tensor]) -> torch.nn.Module:
        """Return a block as a module with these float32 weights (by parameter)."""
        block = deepcopy(self._block(number))
        _place(block, weights)
        return block.eval()

    def carried_out(self, block: torch.nn.Module, number: int, x: torch.Tensor) -> torch.Tensor:
        """Return the hidden states that block `number` makes of x [windows, tokens, columns]."""
        args, kwargs = self._extras[tuple(x.shape[:2])][number]
        with torch.no_grad():
            answer = block(x, *args, **kwargs)
        return answer[0] if isinstance(answer, tuple) else answer

    def embedded(
        self,
        edges: Mapping[str, torch.Tensor],
        first: Callable[[], torch.nn.Module],
        batches: Sequence[Batch],
    ) -> list[torch.Tensor]:
        """Return the first block's input of each batch, float32 [windows, tokens, columns].

        `edges` are float32 tensors by slot; `first` returns a block 0 with weights. Raises ConfigError
        for a model whose blocks cannot be carried out one by one.
        """
        module = deepcopy(self._module)
        _place(module, edges)
        decoder = module.base_model.eval()
        blocks = [module.get_submodule(f"{self._stem}{n}") for n in range(self.count)]
        with torch.no_grad():
            if not self._extras:
                self._tuples = _returns_tuple(decoder, blocks[0], first(), batches[0])
            return [self._through(decoder, blocks, batch) for batch in batches]

    def _through(
        self, decoder: torch.nn.Module, blocks: Sequence[torch.nn.Module], batch: Batch
    ) -> torch.Tensor:
        """Return the hidden states that a batch brings to the blocks; record their other inputs."""
        extras: list[tuple[tuple[object, ...], dict[str, object]]] = []
        states: list[torch.Tensor] = []

        def record(
            x: torch.Tensor, *args: object, **kwargs: object
        ) -> tuple[torch.Tensor] | torch.Tensor:
            if states and x is not states[0]:
                raise _refused("it changes the hidden states between its blocks")
            states.append(x)
            extras.append((args, kwargs))
            return (x,) if self._tuples else x

        for block in blocks:
            block.forward = record
        decoder(input_ids=batch, use_cache=False)
        if len(extras) != len(blocks):
            raise _refused("it does not pass through each of its blocks once")
        if not _same(self._extras.setdefault(tuple(batch.shape), extras), extras):
            raise _refused("what its blocks are given depends on the text")
        return states[0]

    def _block(self, number: int) -> torch.nn.Module:
        return self._module.get_submodule(f"{self._stem}{number}")


def _on_meta(config: Mapping[str, Any]) -> PreTrainedModel:
    """Return the model of a config without weights. Raises SourceError."""
    from agent_forge.weights.architectures.auto import AutoModelForCausalLM
    from agent_forge.weights.architectures.auto_config import AutoConfig

    with described("the config describes no model that can be built"), torch.device("meta"):
        settings = AutoConfig.for_model(**dict(config))
        return AutoModelForCausalLM.from_config(
            settings, dtype=torch.float32, attn_implementation="sdpa", trust_remote_code=False
        )


def _returns_tuple(
    decoder: torch.nn.Module, place: torch.nn.Module, block: torch.nn.Module, batch: Batch
) -> bool:
    """Return True if a block returns its hidden states in a tuple."""
    answers = []

    def stop(*args: object, **kwargs: object) -> None:
        answers.append(block(*args, **kwargs))
        raise _StopForward

    place.forward = stop
    try:
        decoder(input_ids=batch, use_cache=False)
    except _StopForward:
        return isinstance(answers[0], tuple)
    raise _refused("it does not pass through its first block")


def _place(module: torch.nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    """Put tensors into a module by the names of its parameters and buffers."""
    for name, tensor in weights.items():
        parent, _, leaf = name.rpartition(".")
        owner = module.get_submodule(parent)
        if leaf in owner._parameters:
            owner._parameters[leaf] = torch.nn.Parameter(tensor, requires_grad=False)
        else:
            owner._buffers[leaf] = tensor


def _same(first: Any, second: Any) -> bool:
    """Return True if two nests of tuples, lists and mappings hold the same values."""
    if isinstance(first, torch.Tensor):
        return isinstance(second, torch.Tensor) and torch.equal(first, second)
    if isinstance(first, dict):
        return set(first) == set(second) and all(_same(first[k], second[k]) for k in first)
    if isinstance(first, tuple | list):
        return len(first) == len(second) and all(map(_same, first, second))
    return first is second or bool(first == second)


def _refused(why: str) -> ConfigError:
    return ConfigError(
        f"the blocks of this model cannot be carried out one by one: {why}. Take a method that needs "
        "no text, such as linear or tsv_m."
    )
