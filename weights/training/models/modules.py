"""Modules to train: a model's architecture with its weights in torch's own memory, and back."""

from __future__ import annotations

from typing import Any

import torch

from runs.errors import SourceError
from weights.folders.model_config import described
from weights.folders.parameters import fill as parameters_of
from weights.model import Model
from weights.training.models import low_rank
from weights.training.models.sharding import whole


def build(model: Model, device: str = "cpu", attention: str = "sdpa") -> Any:
    """Return a causal language model of transformers with copies of the weights, in float32.

    Raises SourceError if the config describes no such model, or names or shapes do not fit it.
    """
    from weights.architectures.auto import AutoModelForCausalLM
    from weights.architectures.auto_config import AutoConfig

    with described("the config describes no model that can be built"):
        config = AutoConfig.for_model(**dict(model.config))
        config.use_cache = False
        with torch.random.fork_rng(devices=[]):  # initialising draws numbers that nothing reads
            module = AutoModelForCausalLM.from_config(
                config,
                dtype=torch.float32,
                attn_implementation=attention,
                trust_remote_code=False,
            )
    fill(module, model)
    return module.to(device)


def fill(module: Any, model: Model) -> None:
    """Copy a model's weights into the parameters of a module. Raises SourceError if they differ."""
    parameters, given = (
        dict(module.named_parameters()),
        parameters_of(module, model.weights).tensors,
    )
    if set(parameters) != set(given):
        name = sorted(set(parameters) ^ set(given))[0]
        raise SourceError(f"tensor {name} is only in one of the weights and their architecture")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != given[name].shape:
                shapes = [*given[name].shape], [*parameter.shape]
                raise SourceError(f"tensor {name} has the shape {shapes[0]}, not {shapes[1]}")
            parameter.copy_(given[name])


def checkpoint_activations(module: Any) -> None:
    """Let a module compute its blocks again in the backward pass instead of keeping activations."""
    newer = getattr(module, "activation_checkpointing_enable", None)
    (newer or module.gradient_checkpointing_enable)({"use_reentrant": False})


def weights(module: Any) -> dict[str, torch.Tensor]:
    """Return copies of a module's parameters by name, tied ones once, in the processor's memory.

    Adapters are added to the matrices that they are of.
    """
    return {
        name: whole(p).to("cpu", copy=True).contiguous()
        for name, p in low_rank.merged(module).items()
    }
