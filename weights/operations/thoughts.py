"""Operations `thoughts-init` and `thoughts-removed`: a part that thinks is added or taken away."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from pydantic import Field

from agent_forge.runs.errors import ConfigError
from agent_forge.weights import randomness
from agent_forge.weights.folders.model_config import described
from agent_forge.weights.operations.dtypes import Parameterless
from agent_forge.weights.recipes import Frozen
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.thoughts.modeling_thoughts import Thoughts
from agent_forge.weights.thoughts.parts import START, split


class ThoughtsInitParams(Frozen):
    """Parameters of the operation."""

    #: w of the mixture before any training.
    weight: float = Field(default=0.1, gt=0, lt=1)
    #: True if the model also has a pause vector.
    pause: bool = False


class ThoughtsInit:
    """Addition of a newly drawn part (`weights/thoughts`) to the model `of`.

    The part has vectors for start, end and pause, and a mixing head. A vector is drawn from the normal
    distribution with the embeddings' mean and deviation in each dimension. The head's layers are
    uniform in ±1 / √in. The last layer is 0, and its bias gives `weight`.
    """

    Params = ThoughtsInitParams

    def apply(self, inputs: Mapping[str, Tensors], params: ThoughtsInitParams, seed: int) -> Tensors:
        """Return the model plus float32 tensors `thoughts.…`. Raises ConfigError for other roles."""
        if sorted(inputs) != ["of"]:
            raise ConfigError(f"thoughts-init reads the input of, not {sorted(inputs)}")
        model = inputs["of"]
        embedding = model.weights[embedding_name(model)].double()
        mean, deviation = embedding.mean(0), embedding.std(0)
        part = Thoughts(embedding.shape[1], params.pause)
        thought_tensors = {}
        for name, parameter in part.named_parameters():
            shape, key = parameter.shape, ("thoughts", seed, name)
            if name in ("start", "end", "pause"):
                drawn = randomness.gaussian(shape.numel(), *key)
                thought_tensors[name] = mean + deviation * torch.from_numpy(drawn)
            elif name == "last.bias":
                thought_tensors[name] = torch.tensor([math.log(params.weight / (1 - params.weight))])
            elif name in ("first.weight", "second.weight"):
                drawn = 2.0 * randomness.uniform(shape.numel(), *key) - 1.0
                thought_tensors[name] = torch.from_numpy(drawn).reshape(shape) / math.sqrt(shape[1])
            else:
                thought_tensors[name] = torch.zeros(shape)
        added = {
            f"{START}{name}": tensor.float().contiguous() for name, tensor in thought_tensors.items()
        }
        return Tensors(model.config, {**model.weights, **added})


def embedding_name(model: Tensors) -> str:
    """Return the name of the tensor of the input embeddings. Raises SourceError for a bad config."""
    from agent_forge.weights.architectures.auto import AutoModelForCausalLM
    from agent_forge.weights.architectures.auto_config import AutoConfig

    with described("the config describes no model that can be built"), torch.device("meta"):
        config = AutoConfig.for_model(**dict(model.config))
        module = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    embedding = module.get_input_embeddings().weight
    return next(name for name, parameter in module.named_parameters() if parameter is embedding)


class ThoughtsRemoved:
    """Removal of the tensors of the part that thinks."""

    Params = Parameterless

    def apply(self, inputs: Mapping[str, Tensors], params: Parameterless, seed: int) -> Tensors:
        """Return `of` without its tensors `thoughts.…`. Raises ConfigError for other roles."""
        if sorted(inputs) != ["of"]:
            raise ConfigError(f"thoughts-removed reads the input of, not {sorted(inputs)}")
        return Tensors(inputs["of"].config, split(inputs["of"].weights)[0])
