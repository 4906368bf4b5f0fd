"""Operations `fresh` and `resized`: newly drawn weights for another model's config, or other sizes.

transformers draws them by a config and a seed. The numbers depend on the versions of torch and
transformers, which the profile records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.folders.model_config import described
from agent_forge.weights.operations.dtypes import Parameterless
from agent_forge.weights.recipes import Parameters
from agent_forge.weights.tensors import Tensors

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


class Fresh:
    """Initialisation by the config of the given model and a seed."""

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


class ConfigSizes(Parameters):
    """Settings of config.json that differ from those of the given model."""

    changes: dict[str, int | tuple[str, ...]]


def resized(config: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """Return a config.json, a dict, with `changes` made, and dtype float32 to draw weights in."""
    settings = {name: value for name, value in config.items() if name != "torch_dtype"}
    sizes = {n: list(v) if isinstance(v, tuple) else v for n, v in changes.items()}
    return {**settings, **sizes, "dtype": "float32"}


def parameters(config: Mapping[str, Any]) -> int:
    """Return the number of parameters of the model that a config.json describes, tied ones once.

    Raises SourceError for a config that describes no model.
    """
    from agent_forge.weights.architectures.auto import AutoModelForCausalLM
    from agent_forge.weights.architectures.auto_config import AutoConfig

    with described("the sizes describe no model that can be built"), torch.device("meta"):
        model_config: PreTrainedConfig = AutoConfig.for_model(**dict(config))
        module: PreTrainedModel = AutoModelForCausalLM.from_config(
            model_config, trust_remote_code=False
        )
    return sum(parameter.numel() for parameter in module.parameters())


class Resized:
    """Initialisation by the config of `of` with other sizes and a seed."""

    Params = ConfigSizes

    def apply(self, inputs: Mapping[str, Tensors], params: ConfigSizes, seed: int) -> Tensors:
        """Return a newly drawn model of the new sizes, float32; restore torch's generator.

        Raises ConfigError for other roles, or for a setting that the config lacks; SourceError for
        sizes that describe no model.
        """
        if sorted(inputs) != ["of"]:
            raise ConfigError(f"resized reads the input of, not {sorted(inputs)}")
        config = inputs["of"].config
        if unknown := sorted(set(params.changes) - set(config)):
            raise ConfigError(f"the config of the given model has no {unknown[0]} to change")
        return drawn(resized(config, params.changes), seed)
