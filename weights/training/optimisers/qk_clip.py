"""QK-Clip: a bound on the attention logits of each head, by scaling weights after the step.

Kimi Team 2025, "Kimi K2: Open Agentic Intelligence", arXiv 2507.20534, section on MuonClip: S_max of
a head is its largest logit (scaled by 1/√d, before the softmax) over the batch of a step, and

    γ = min(1, τ / S_max),    W_q ← √γ W_q,    W_k ← √γ W_k    of that head.

Two things go beyond the paper, whose architecture does not need them:

- Biases of queries and keys are scaled with the weights; otherwise the logits stay above τ.
- Heads of grouped-query attention share a key. For them the whole γ goes into W_q and b_q: a smaller
  key would shrink the logits of the other heads of the group, too.

τ = 100 is the paper's. τ = 30 fires on healthy tiny models: the base of `forge cognate`'s tiny
preset has S_max from 16 to 31 by layer once it is trained, and two of its six layers are above 30.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from agent_forge.runs.errors import ConfigError


class AttentionError(ConfigError):
    """A model whose attention logits QK-Clip cannot read or bound."""


class QKClip:
    """The clip over all attention modules of a model.

    Hooks on these modules record S_max in each forward pass in training mode and with gradients.
    Several passes before a step (accumulation) count together, and so does a pass that gradient
    checkpointing repeats. Evaluation between steps does not count. The hooks are removed when this
    object is freed. Passes with a filled key cache are not supported.
    """

    def __init__(self, model: torch.nn.Module, tau: float) -> None:
        """Set hooks on the attention of `model`; bound its logits by `tau` > 0.

        Raises AttentionError if the model has no attention with `q_proj` and `k_proj`, or one whose
        logits do not depend on the size of its weights (norms on queries and keys), or one whose
        projections are not plain trainable linear layers (adapters, packed weights).
        """
        self.tau = tau
        self.heads = [_Heads(name, m) for name, m in model.named_modules() if _is_attention(m)]
        if not self.heads:
            raise AttentionError(
                "QK-Clip needs attention modules with q_proj and k_proj, and the model has none: "
                "leave tau empty."
            )
        hooks = [hook for heads in self.heads for hook in heads.hooks()]
        weakref.finalize(self, _remove, hooks)

    @torch.no_grad()
    def apply(self) -> int:
        """Scale the heads whose S_max is above τ, reset S_max, and return how many were scaled.

        Raises AttentionError if no forward pass in training mode was made since the last call.
        """
        if all(heads.largest is None for heads in self.heads):
            raise AttentionError(
                "QK-Clip saw no forward pass since the last step: call model.train() and compute "
                "the loss with gradients before the step."
            )
        return sum(heads.clip(self.tau) for heads in self.heads)

    def largest(self) -> dict[str, torch.Tensor]:
        """Return attention module's name → S_max of its heads since the last step, [heads] float32."""
        return {h.name: h.largest.clone() for h in self.heads if h.largest is not None}


class _Heads:
    """The heads of one attention module."""

    def __init__(self, name: str, module: Any) -> None:
        self.name, self.module = name, module
        self.size: int = module.head_dim
        for part in ("q_proj", "k_proj"):
            _check_projection(name, getattr(module, part), self.size)
        if getattr(module, "q_norm", None) is not None:
            raise AttentionError(
                f"{name} normalises queries and keys, which bounds the logits already: leave tau empty."
            )
        self.queries = module.q_proj.out_features // self.size
        self.keys = module.k_proj.out_features // self.size
        #: S_max of each query head since the last step, [heads] float32.
        self.largest: torch.Tensor | None = None
        self.projected: dict[str, torch.Tensor] = {}

    def hooks(self) -> list[RemovableHandle]:
        """Set the hooks on the module and its two projections; return their handles."""
        return [
            self.module.q_proj.register_forward_hook(self._keep("q")),
            self.module.k_proj.register_forward_hook(self._keep("k")),
            self.module.register_forward_hook(self._measure, with_kwargs=True),
        ]

    def _keep(self, part: str) -> Callable[[torch.nn.Module, object, torch.Tensor], None]:
        def keep(module: torch.nn.Module, _: object, output: torch.Tensor) -> None:
            if torch.is_grad_enabled() and module.training:
                self.projected[part] = output.detach()

        return keep

    @torch.no_grad()
    def _measure(self, module: Any, args: object, kwargs: dict[str, Any], _: object) -> None:
        """Raise S_max of each head to that of this forward pass, if that is larger."""
        if len(self.projected) < 2:
            return
        query, key = (self._split(self.projected.pop(part)) for part in ("q", "k"))
        with torch.autocast(query.device.type, enabled=False):
            rotary = kwargs.get("position_embeddings")
            if rotary is not None:
                rotate = sys.modules[type(module).__module__].apply_rotary_pos_emb
                query, key = rotate(query, key, *(part.float() for part in rotary))
            mask = kwargs.get("attention_mask")
            if mask is not None and not (isinstance(mask, torch.Tensor) and mask.dim() == 4):
                raise AttentionError(
                    "QK-Clip reads the masks of eager and sdpa attention only: load the model with "
                    "one of them, or leave tau empty."
                )
            maxima = largest_logits(query, key, module.scaling, mask)
        self.largest = maxima if self.largest is None else torch.maximum(self.largest, maxima)

    def _split(self, projected: torch.Tensor) -> torch.Tensor:
        """Return [batch, places, width] split into heads, [batch, heads, places, head size] float32."""
        return projected.unflatten(-1, (-1, self.size)).transpose(1, 2).float()

    def clip(self, tau: float) -> int:
        """Scale the heads whose S_max is above `tau`, reset S_max, and return how many were scaled."""
        largest, self.largest = self.largest, None
        if largest is None or not bool((largest > tau).any()):
            return 0
        factors = torch.where(largest > tau, tau / largest, torch.ones_like(largest))
        if self.keys == self.queries:
            factors = factors.sqrt()
            self._scale(self.module.k_proj, factors)
        self._scale(self.module.q_proj, factors)
        return int((largest > tau).sum())

    def _scale(self, projection: torch.nn.Linear, factors: torch.Tensor) -> None:
        """Multiply each head's rows of weight and bias by its factor; 1 leaves the same bits."""
        rows = factors.repeat_interleave(self.size)
        projection.weight.mul_(rows.to(projection.weight.dtype)[:, None])
        if projection.bias is not None:
            projection.bias.mul_(rows.to(projection.bias.dtype))


def largest_logits(
    query: torch.Tensor, key: torch.Tensor, scaling: float, mask: torch.Tensor | None
) -> torch.Tensor:
    """Return S_max of each query head over batch and visible pairs of places, [heads] float32.

    `query` is [batch, heads, places, size] and `key` [batch, key heads, places, size]. `mask` is
    transformers' [batch, 1 or heads, places, places]: bool (True is visible) or added to the
    logits; without one, a place sees itself and earlier places.
    """
    group = query.shape[1] // key.shape[1]
    if mask is None:
        places = query.shape[-2], key.shape[-2]
        mask = torch.ones(places, dtype=torch.bool, device=query.device).tril()[None, None]
    maxima = []
    for head in range(query.shape[1]):
        logits = query[:, head] @ key[:, head // group].transpose(-1, -2) * scaling
        shown = mask[:, head if mask.shape[1] > 1 else 0, :, : key.shape[-2]]
        if shown.dtype == torch.bool:
            logits = logits.masked_fill(~shown, -torch.inf)
        else:
            logits = logits + shown
        maxima.append(logits.max())
    return torch.stack(maxima)


def _is_attention(module: object) -> bool:
    return all(hasattr(module, part) for part in ("q_proj", "k_proj", "head_dim", "scaling"))


def _check_projection(name: str, projection: object, size: int) -> None:
    """Raise AttentionError unless the projection's rows are whole heads of trainable weights."""
    if (
        not isinstance(projection, torch.nn.Linear)
        or not projection.weight.requires_grad
        or projection.out_features % size
    ):
        raise AttentionError(
            f"{name} has a projection that is no plain trainable linear layer of whole heads: "
            "leave tau empty."
        )


def _remove(hooks: list[RemovableHandle]) -> None:
    for hook in hooks:
        hook.remove()
