"""Operation `average`: a weighted sum of models, such as the snapshots of one training.

Which factors stand for which decay of a learning rate: `weights/averages.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.averages import role
from agent_forge.weights.tensors import Model


class Factors(BaseModel):
    """The factors of the models "model-0000", … in order."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    factors: tuple[float, ...] = Field(min_length=1)


class Average:
    """Weighted sum of all tensors, each in float64 and rounded once to the first model's dtype.

    Multiplications and additions are separate operations in the order of the models, so the bits are
    the same on every processor.
    """

    Params = Factors

    def apply(self, inputs: Mapping[str, Model], params: Factors, seed: int) -> Model:
        """Return Σ factor · model.

        Raises ConfigError for other roles, SourceError for other tensors.
        """
        roles = [role(place) for place in range(len(params.factors))]
        if sorted(inputs) != roles:
            raise ConfigError(f"average reads {roles}, not {sorted(inputs)}")
        first, *other_models = (inputs[name] for name in roles)
        for other in other_models:
            if {n: t.shape for n, t in other.weights.items()} != {
                n: t.shape for n, t in first.weights.items()
            }:
                raise SourceError("average: the models have other tensors, or of other shapes")
        averages = {}
        for name, tensor in first.weights.items():
            if not tensor.is_floating_point():
                averages[name] = tensor
                continue
            total = tensor.double() * params.factors[0]
            for factor, other in zip(params.factors[1:], other_models, strict=True):
                total += other.weights[name].double() * factor
            averages[name] = total.to(tensor.dtype)
        return Model(first.config, averages)
