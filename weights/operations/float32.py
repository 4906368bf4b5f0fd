"""Operation `float32`: a given model with its tensors in float32, as trainings read it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import BaseModel, ConfigDict

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.tensors import Tensors


class Parameterless(BaseModel):
    """No parameters."""

    model_config = ConfigDict(frozen=True, extra="forbid")


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
