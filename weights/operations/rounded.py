"""Operation `rounded`: a trained model in the dtype of the model that it was trained from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict

from agent_forge.runs.errors import ConfigError, NotFiniteError
from agent_forge.weights.tensors import Tensors

ROLES = ("like", "of")


class RoundedParams(BaseModel):
    """The dtype of tensors that `like` lacks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    others: Literal["bfloat16", "float16", "float32"] = "float32"


class Rounded:
    """Rounding of all tensors but integers to their dtypes in `like`, to the nearest, ties to even."""

    Params = RoundedParams

    def apply(self, inputs: Mapping[str, Tensors], params: RoundedParams, seed: int) -> Tensors:
        """Return the model `of` in the dtypes of `like`.

        Raises ConfigError for other roles, NotFiniteError for a number beyond the range of its dtype.
        """
        if sorted(inputs) != list(ROLES):
            raise ConfigError(f"rounded reads the inputs like and of, not {sorted(inputs)}")
        like, dtype = inputs["like"].weights, getattr(torch, params.others)
        dtypes = {n: like[n].dtype if n in like else dtype for n in inputs["of"].weights}
        weights = {n: in_dtype(n, t, dtypes[n]) for n, t in inputs["of"].weights.items()}
        return Tensors(inputs["of"].config, weights)


def in_dtype(name: str, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the tensor in another floating-point dtype; a tensor of integers stays as it is.

    Raises NotFiniteError if a number is beyond the range of the dtype; `name` is for its text.
    """
    if not tensor.is_floating_point() or tensor.dtype == dtype:
        return tensor
    rounded = tensor.to(dtype).contiguous()
    if not rounded.isfinite().all():
        label = str(dtype).removeprefix("torch.")
        raise NotFiniteError(
            f"tensor {name} has numbers up to {float(tensor.abs().max()):.3g}, beyond the range of "
            f"{label} ({torch.finfo(dtype).max:.3g}), which the given model is in. Give the model in "
            "bfloat16 or float32."
        )
    return rounded
