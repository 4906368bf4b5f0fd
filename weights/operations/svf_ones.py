"""Operation `svf-ones`: vectors of ones, which change nothing; experts begin with them."""

from __future__ import annotations

from collections.abc import Mapping

from agent_forge.runs.errors import ConfigError
from agent_forge.weights import svf
from agent_forge.weights.operations.float32 import Nothing
from agent_forge.weights.tensors import Model


class SvfOnes:
    """Vectors of ones for every matrix of the decomposition `svd`, float32 [rank] by its name."""

    Params = Nothing

    def apply(self, inputs: Mapping[str, Model], params: Nothing, seed: int) -> Model:
        """Return a model of matrix name → ones, float32 [rank]. Raises ConfigError for other roles."""
        if sorted(inputs) != ["svd"]:
            raise ConfigError(f"svf-ones reads the input svd, not {sorted(inputs)}")
        return Model(inputs["svd"].config, svf.ones(inputs["svd"].weights))
