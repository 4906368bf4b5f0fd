"""Operation `thoughts-removed`: a model that thinks, without the part that thinks."""

from __future__ import annotations

from collections.abc import Mapping

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.operations.float32 import Parameterless
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.thoughts.parts import split


class ThoughtsRemoved:
    """Removal of the tensors of the part that thinks."""

    Params = Parameterless

    def apply(self, inputs: Mapping[str, Tensors], params: Parameterless, seed: int) -> Tensors:
        """Return `of` without its tensors `thoughts.…`. Raises ConfigError for other roles."""
        if sorted(inputs) != ["of"]:
            raise ConfigError(f"thoughts-removed reads the input of, not {sorted(inputs)}")
        return Tensors(inputs["of"].config, split(inputs["of"].weights)[0])
