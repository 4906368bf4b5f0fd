"""Linear layers of a module that compute with ternary weights or int8 activations.

A layer keeps its parameters and their names: what changes is its `forward`. Embedding and head stay
as they are (arXiv 2402.17764, section 2). No norm is added before a layer; the paper's own models have
one there, so that the inputs of `o_proj` and `down_proj` are quantised here without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional as F

from runs.errors import ConfigError
from weights.ternary import quantiser


class Share:
    """The share λ of quantisation that layers compute with; 1 is all of it."""

    def __init__(self, value: float = 1.0) -> None:
        """Begin with a share."""
        self.value = value


def linears(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, layer) of every linear layer but the head."""
    head = getattr(module, "get_output_embeddings", lambda: None)()
    for name, layer in module.named_modules():
        if isinstance(layer, torch.nn.Linear) and layer is not head:
            yield name, layer


def names(module: Any) -> list[str]:
    """Return the names of the matrices that are ternary in a module, sorted."""
    return sorted(f"{name}.weight" for name, _ in linears(module))


def train_ternary(module: Any, group: int, activations: bool) -> Share:
    """Let a module's linear layers compute with ternary weights; return the λ that they read.

    Gradients pass to the full-precision parameters (straight-through). If `activations`, inputs are
    int8 as well. Raises ConfigError for a module without linear layers, or a group that does not fit.
    """
    share = Share()
    found = list(linears(module))
    if not found:
        raise ConfigError("the model has no linear layers: nothing could be ternary")
    for name, layer in found:
        quantiser.check_group(name, layer.in_features, group)
    for _, layer in found:
        layer.forward = _forward(layer, share, group, activations)
    return share


def _forward(
    layer: torch.nn.Linear, share: Share, group: int, activations: bool
) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(x: torch.Tensor) -> torch.Tensor:
        weight = layer.weight
        ternary = quantiser.quantise(weight.detach(), group)
        weight = quantiser.straight_through(weight, ternary, share.value)
        if activations:
            x = quantiser.straight_through(
                x, quantiser.quantise_activations(x.detach()), share.value
            )
        return F.linear(x, weight, layer.bias)

    return forward


def compute_int8(module: Any) -> None:
    """Let a module's linear layers round their inputs to int8; weights are taken as they are.

    A module with packed weights then computes what the trained one does at λ = 1.
    """
    for _, layer in linears(module):
        layer.forward = _int8_forward(layer)


def _int8_forward(layer: torch.nn.Linear) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return F.linear(quantiser.quantise_activations(x), layer.weight, layer.bias)

    return forward
