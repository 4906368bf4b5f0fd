"""Operation `svf-ones`: the vectors of ones, which change nothing: what experts begin with."""

from __future__ import annotations

from collections.abc import Mapping

from runs.errors import ConfigError
from weights.model import Model
from weights.operations.float32 import Nothing
from weights.svf import changes


class SvfOnes:
    """Vectors of ones for every matrix of the decomposition `svd`, float32 [rank] by its name."""

    Params = Nothing

    def apply(self, inputs: Mapping[str, Model], params: Nothing, seed: int) -> Model:
        """Return the vectors. Raises ConfigError for other roles."""
        if sorted(inputs) != ["svd"]:
            raise ConfigError(f"svf-ones reads the input svd, not {sorted(inputs)}")
        return Model(inputs["svd"].config, changes.ones(inputs["svd"].weights))
