"""Linear layers of a module that compute with ternary weights and int8 activations.

A layer keeps its parameters and their names; only its `forward` changes. Embedding and head stay as
they are (arXiv 2402.17764, section 2). The paper's models have a norm before each layer. This module
adds no norm, so the inputs of `o_proj` and `down_proj` are quantised without one.

With one scale for each tensor, products are of whole numbers, and scaled afterwards:

    y = (q tᵀ) / (k / s) + b,  q = round(k x),  t = trits of W

Sums of up to 2²⁴ / 127 such products are exact in float32 in any order. So the forward passes of a
training, of packed weights and of transformers' BitLinear give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.nn import functional as F

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.folders.model_config import described
from agent_forge.weights.ternary import quantiser


class Share:
    """The share λ of quantisation that layers compute with, from 0 to 1; it can be changed."""

    def __init__(self, value: float = 1.0) -> None:
        """Begin with the share `value`."""
        self.value = value


def linears(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield (name, layer) of every linear layer but the head."""
    head = getattr(module, "get_output_embeddings", lambda: None)()
    for name, layer in module.named_modules():
        if isinstance(layer, torch.nn.Linear) and layer is not head:
            yield name, layer


def names(module: torch.nn.Module) -> list[str]:
    """Return the sorted names of the matrices of a module's linear layers but the head."""
    return sorted(f"{name}.weight" for name, _ in linears(module))


def of_config(settings: Mapping[str, Any]) -> list[str]:
    """Return the sorted matrix names of `names` for the model of a config.json. Raises SourceError."""
    from agent_forge.weights.architectures.auto import AutoModelForCausalLM
    from agent_forge.weights.architectures.auto_config import AutoConfig

    with described("the config describes no model that can be built"), torch.device("meta"):
        config = AutoConfig.for_model(**dict(settings))
        return names(AutoModelForCausalLM.from_config(config, trust_remote_code=False))


def train_ternary(module: torch.nn.Module, group: int, int8: bool) -> Share:
    """Make a module's linear layers compute with ternary weights; return their Share λ.

    Gradients pass to the full-precision parameters (straight-through). If `int8`, the layers' inputs
    are quantised as well. Raises ConfigError for a module without linear layers, or a group that does
    not fit.
    """
    share, layers = Share(), list(linears(module))
    if not layers:
        raise ConfigError("the model has no linear layers: nothing could be ternary")
    for name, layer in layers:
        quantiser.check_group(name, layer.in_features, group)
    for _, layer in layers:
        layer.forward = _training(layer, share, group, int8)
    return share


def compute_packed(module: torch.nn.Module, group: int, int8: bool) -> None:
    """Make a module's linear layers compute with weights that are ternary already.

    A tensor or group must hold {−s, 0, s} only (`quantiser.parts`) when the module computes.
    """
    for _, layer in linears(module):
        layer.forward = _packed(layer, group, int8)


def _training(
    layer: torch.nn.Linear, share: Share, group: int, int8: bool
) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(x: torch.Tensor) -> torch.Tensor:
        weight = layer.weight
        scale = quantiser.mean_scale(weight.detach(), group)
        levels = quantiser.trits(weight.detach(), scale)
        unit = weight / quantiser.spread(scale.clamp(min=quantiser.TINY), weight.shape[1])
        trits = quantiser.straight_through(unit, levels, share.value)
        return _product(x, trits, scale, layer.bias, int8, share.value)

    return forward


def _packed(layer: torch.nn.Linear, group: int, int8: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(x: torch.Tensor) -> torch.Tensor:
        scale = quantiser.largest(layer.weight, group)
        return _product(x, layer.weight.sign(), scale, layer.bias, int8, 1.0)

    return forward


def _product(
    x: torch.Tensor,
    trits: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor | None,
    int8: bool,
    share: float,
) -> torch.Tensor:
    """Return the layer's output, float32, of [..., columns] inputs and [rows, columns] trits."""
    divisor = torch.ones((), device=x.device)
    if int8:
        levels, factor = quantiser.int8(x.detach())
        x, divisor = quantiser.straight_through(x.float() * factor, levels, share), factor
    if scale.numel() == 1:
        divisor = divisor * (1 / scale.clamp(min=quantiser.TINY)).reshape(1)
    else:
        trits = trits * quantiser.spread(scale, trits.shape[1])
    y = F.linear(x, trits) / divisor
    return y if bias is None else y + bias
