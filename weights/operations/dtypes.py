"""Operations `float32` and `rounded`: a model in the dtype of trainings, or in another model's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch

from agent_forge.runs.errors import ConfigError, NotFiniteError, SourceError
from agent_forge.weights.recipes import Parameters
from agent_forge.weights.tensors import Tensors

#: Inputs of `rounded`.
ROLES = ("like", "of")


class Parameterless(Parameters):
    """No parameters."""


class Float32:
    """Conversion of a model's tensors to float32, which holds every float16 and bfloat16 exactly.

    Trainings keep weights in float32. So the start of a training is a model of its own, whose digest
    can be compared even if the given weights are of half precision.
    """

    Params = Parameterless

    def apply(self, inputs: Mapping[str, Tensors], params: Parameterless, seed: int) -> Tensors:
        """Return the model `of` with every floating-point tensor in float32.

        Raises ConfigError for other roles, SourceError for a tensor of integers (a quantised model).
        """
        if sorted(inputs) != ["of"]:
            raise ConfigError(f"float32 reads the input of, not {sorted(inputs)}")
        model = inputs["of"]
        for name, tensor in model.weights.items():
            if not tensor.is_floating_point():
                raise SourceError(
                    f"tensor {name} is {str(tensor.dtype).removeprefix('torch.')}: a quantised model "
                    "cannot be trained. Give the model that it was made from."
                )
        weights = {n: t.to(torch.float32).contiguous() for n, t in model.weights.items()}
        return Tensors({**model.config, "dtype": "float32"}, weights)


class RoundedParams(Parameters):
    """The dtype of tensors that `like` lacks."""

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
