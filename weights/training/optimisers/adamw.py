"""Optimiser `adamw`: AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101), torch's fused form."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field

from agent_forge.weights.recipes import Frozen

#: Tensors that torch's AdamW keeps for a parameter: step count and the two moments.
KEPT = ("step", "exp_avg", "exp_avg_sq")


class AdamWSettings(Frozen):
    """Settings of AdamW; the learning rate is the schedule's."""

    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    epsilon: float = Field(default=1e-8, gt=0)
    #: Weight decay of matrices. Norms and biases have none.
    weight_decay: float = Field(default=0.1, ge=0)


class AdamW:
    """AdamW over all parameters of a module that need gradients."""

    Settings = AdamWSettings

    def __init__(self, model: torch.nn.Module, settings: AdamWSettings) -> None:
        """Group the parameters: matrices with weight decay, all others without."""
        self._named = {n: p for n, p in model.named_parameters() if p.requires_grad}
        matrices = [p for p in self._named.values() if p.dim() > 1]
        rest = [p for p in self._named.values() if p.dim() <= 1]
        groups = [
            {"params": matrices, "weight_decay": settings.weight_decay},
            {"params": rest, "weight_decay": 0.0},
        ]
        betas = (settings.beta1, settings.beta2)
        self._inner = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            betas=betas,
            eps=settings.epsilon,
            fused=True,
        )

    def step(self, rate: float) -> None:
        """Update the parameters in place from their gradients, at the learning rate `rate`."""
        for group in self._inner.param_groups:
            group["lr"] = rate
        self._inner.step()

    def state(self) -> dict[str, torch.Tensor]:
        """Return "PARAMETER/SLOT" → "step", "exp_avg" or "exp_avg_sq", which steps change."""
        return {
            f"{name}/{slot}": self._inner.state[p][slot].detach()
            for name, p in self._named.items()
            for slot in KEPT
            if slot in self._inner.state[p]
        }

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore the state from copies of `state`'s result. Raises KeyError for an unknown name."""
        self._inner.state.clear()
        for key, tensor in tensors.items():
            name, _, slot = key.rpartition("/")
            parameter = self._named[name]
            copy = tensor.detach().clone().to(parameter.device)
            self._inner.state[parameter][slot] = copy
