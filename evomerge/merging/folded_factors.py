"""Factors on the input of a block: which projections they fold into, and which models allow it.

A factor W on the input of a block is folded by dividing by W what the block writes into the residual
stream, in this block and all after it. That is the same function if blocks and final norm read the
stream through norms alone, and nothing rescales what is written. The config says which class that
is; whether the class allows it is tried: two blocks of the config's own widths, random weights, once
with the factor and once with the fold. Post-norm blocks (OLMo 2) and blocks that norm what they write
(Gemma 2, 3) fail; Granite's multipliers, fused projections (Phi-3) and GPT-2's norms pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from agent_forge.weights import block_names, randomness
from agent_forge.weights.folders import model_config
from agent_forge.weights.folders.parameters import fill_buffers

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Projections that write into the residual stream, by a part of their tensors' names.
WRITERS = {"o_proj", "down_proj", "out_proj", "w2", "c_proj"}
#: Factor that is tried, tokens that it is tried on, and relative difference of logits from which
#: two functions are not the same: norms see a factor through their epsilon.
FACTOR, TRIED, APART = 2.0, 6, 1e-2
#: Rows of the embedding in the trial.
VOCABULARY = 8


def writes(name: str) -> bool:
    """Return True if a block's tensor writes into the residual stream."""
    return not WRITERS.isdisjoint(name.split("."))


def obstacle(folder: Path, config: Mapping[str, object]) -> str | None:
    """Return the reason why factors cannot be folded into such models' weights; None if they can.

    `config` has the defaults that the file leaves out; `folder` is the one that messages name.
    """
    if not _folds(str(folder), json.dumps(config, sort_keys=True, default=str)):
        return (
            f"a factor on a block's input cannot be folded into the weights of {config['model_type']} "
            "models: their blocks do not begin with a norm, norm what they write, or write by other "
            f"projections than {', '.join(sorted(WRITERS))} (tried on two blocks with random weights)."
        )
    return None


@lru_cache(maxsize=32)
@torch.inference_mode()
def _folds(folder: str, text: str) -> bool:
    """Return True if a factor on the second block's input is the same function once folded."""
    module = _random(Path(folder), json.loads(text))
    writers = [
        (name, p)
        for name, p in module.named_parameters()
        if block_names.block_of(name) == 1 and writes(name)
    ]
    block = _second_block(module)
    if not writers or block is None:
        return False
    with _doubled(block):
        expected = _logits(module)
    for _, parameter in writers:
        parameter.data /= FACTOR
    logits = _logits(module)
    return float((logits - expected).norm()) <= APART * float(expected.norm())


def _random(folder: Path, config: dict[str, Any]) -> PreTrainedModel:
    """Return a model of two blocks and few tokens with random float32 weights."""
    config = block_names.with_blocks(config, [(config, 0), (config, 1)])
    settings = config.get("text_config") or config
    settings["vocab_size"] = VOCABULARY
    settings |= dict.fromkeys(key for key in settings if key.endswith("_token_id"))
    settings |= dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    config.pop("quantization_config", None)
    module = model_config.empty(folder, model_config.configuration(folder, config))
    fill_buffers(module, torch.device("cpu"))
    for name, parameter in list(module.named_parameters()):
        parent, _, leaf = name.rpartition(".")
        drawn = randomness.uniform(parameter.numel(), "folded factors", name) - 0.5
        values = torch.from_numpy(drawn).float().view(parameter.shape)
        if parameter.dim() == 1:
            values = 1.0 + 0.2 * values
        else:
            values *= (12.0 / parameter.shape[-1]) ** 0.5
        owner = module.get_submodule(parent)
        owner._parameters[leaf] = torch.nn.Parameter(values, requires_grad=False)
    module.tie_weights()
    return module.eval()


def _second_block(module: PreTrainedModel) -> torch.nn.Module | None:
    """Return the submodule that is block 1; None without one."""
    for name, part in module.named_modules():
        if block_names.block_of(f"{name}.") == 1:
            return part
    return None


@contextmanager
def _doubled(block: torch.nn.Module) -> Iterator[None]:
    """Multiply the block's input by `FACTOR` inside the `with` statement."""
    hook = block.register_forward_pre_hook(lambda _, inputs: (FACTOR * inputs[0], *inputs[1:]))
    try:
        yield
    finally:
        hook.remove()


def _logits(module: PreTrainedModel) -> torch.Tensor:
    ids = torch.arange(TRIED)[None] % VOCABULARY
    return module(input_ids=ids, use_cache=False).logits.float()
