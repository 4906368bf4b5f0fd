"""Operation `fresh`: a model of another one's architecture with newly drawn weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.folders.model_config import described
from agent_forge.weights.operations.float32 import Parameterless
from agent_forge.weights.tensors import Tensors

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Fresh:
    """Initialisation by transformers, by the config of the given model and a seed.

    The numbers depend on the versions of torch and transformers, which the profile records.
    """

    Params = Parameterless

    def apply(self, inputs: Mapping[str, Tensors], params: Parameterless, seed: int) -> Tensors:
        """Return a newly drawn model with the config of `of`, float32; restore torch's generator.

        Raises ConfigError for other roles, SourceError for a config that describes no such model.
        """
        if sorted(inputs) != ["of"]:
            raise ConfigError(f"fresh reads the input of, not {sorted(inputs)}")
        return drawn(inputs["of"].config, seed)


def drawn(config: Mapping[str, Any], seed: int) -> Tensors:
    """Return the model of a config.json with newly drawn weights, float32; restore torch's generator.

    Raises SourceError for a config that describes no model.
    """
    from agent_forge.weights.architectures.auto import AutoModelForCausalLM
    from agent_forge.weights.architectures.auto_config import AutoConfig

    with (
        described("the config describes no model that can be built"),
        torch.random.fork_rng(devices=[]),
    ):
        torch.manual_seed(seed)
        module: PreTrainedModel = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(**dict(config)), dtype=torch.float32, trust_remote_code=False
        )
    return Tensors(config, {name: p.detach() for name, p in module.named_parameters()})
