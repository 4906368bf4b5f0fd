"""Self-model: the part of an inner layer's activations that the last layer does not predict.

"Unexpected Benefits of Self-Modeling in Neural Systems" (Premakumar et al. 2024, arXiv 2407.10188)
trains a network to predict the activations of an inner layer by a linear map of its last layer. It
trains both map and activations. Here the map is the one that fits best on the step's rows (ridge
regression). By the envelope theorem its own derivative does not count, so the gradient is that of a map
that is always trained to its end, and no parameter is added to the model.
"""

from __future__ import annotations

import torch
from pydantic import BaseModel, ConfigDict, Field

from agent_forge.runs.errors import ConfigError

#: Ridge, as a share of the mean of the Gram matrix's diagonal.
RIDGE = 1e-3


class SelfModel(BaseModel):
    """Settings of the self-model."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    #: Weight in the loss, where the loss of the answers has 1.
    weight: float = Field(gt=0)
    #: Number, from 1, of the block whose output is predicted; 0: the embeddings; None: that after half
    #: of the blocks.
    layer: int | None = Field(default=None, ge=0)

    def of(self, blocks: int) -> int:
        """Return the predicted layer's number in a model of this many blocks. Raises ConfigError."""
        layer = blocks // 2 if self.layer is None else self.layer
        if layer >= blocks:
            raise ConfigError(
                f"a self-model predicts the activations after block {layer}: the model has {blocks} "
                "blocks, and the last one is what it predicts from"
            )
        return layer


def untold(inner: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """Return (Σ‖a − â‖² + ρ‖G‖²) / Σ‖a‖² with the best fit â = G·(last, 1), a scalar from 0 to 1.

    `inner` are the activations a, `last` those of the last layer, [tokens, width] each. The denominator
    and ρ are no part of the gradient. It is computed in float32.
    """
    with torch.autocast(last.device.type, enabled=False):
        inputs = torch.cat([last, torch.ones_like(last[:, :1])], -1).float()
        targets = inner.float()
        with torch.no_grad():
            gram = inputs.T @ inputs
            ridge = RIDGE * gram.diagonal().mean()
            gram.diagonal().add_(ridge)
            fitted = torch.linalg.solve(gram, inputs.T @ targets)
            whole = targets.square().sum().clamp_min(torch.finfo(torch.float32).tiny)
        left = (targets - inputs @ fitted).square().sum() + ridge * fitted.square().sum()
        return left / whole
