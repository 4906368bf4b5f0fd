"""Operation `svf-ones`: vectors of ones, which change nothing; experts begin with them."""

from __future__ import annotations

from collections.abc import Mapping

from agent_forge.runs.errors import ConfigError
from agent_forge.weights import svf
from agent_forge.weights.operations.float32 import Parameterless
from agent_forge.weights.tensors import Tensors


class SvfOnes:
    """Vectors of ones for every matrix of the decomposition `svd`, float32 [rank] by its name."""

    Params = Parameterless

    def apply(self, inputs: Mapping[str, Tensors], params: Parameterless, seed: int) -> Tensors:
        """Return a model of matrix name → ones, float32 [rank]. Raises ConfigError for other roles."""
        if sorted(inputs) != ["svd"]:
            raise ConfigError(f"svf-ones reads the input svd, not {sorted(inputs)}")
        return Tensors(inputs["svd"].config, svf.ones(inputs["svd"].weights))
