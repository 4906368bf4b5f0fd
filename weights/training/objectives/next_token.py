"""Objective `lm`: cross-entropy of the next token over windows of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch.nn import functional as F

from agent_forge.runs.errors import ConfigError, SourceChangedError
from agent_forge.weights.recipes import Parameters, Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.objectives import Batch
from agent_forge.weights.training.windows import Batches, Ids, stream_digest


class NoParams(Parameters):
    """Parameters of the objective: none."""


class Stateless:
    """The part of an objective of which nothing lives longer than a step."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return {}: the rows of a step depend on the recipe and the step alone."""
        return {}

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Raise KeyError for any tensor: there is no state to restore."""
        if tensors:
            raise KeyError(sorted(tensors)[0])


class NextToken(Stateless):
    """Objective: the mean of −log p(next token), nats a token."""

    Params = NoParams

    def __init__(
        self,
        recipe: Train,
        module: torch.nn.Module,
        streams: Mapping[str, Ids],
        inputs: Mapping[str, Tensors],
    ) -> None:
        """Check the streams against the digests of the recipe.

        Raises ConfigError for missing streams or for inputs, SourceChangedError for other data.
        """
        check_inputs("lm", (), recipe, inputs)
        check_streams("lm", recipe, streams)
        self._module = module
        self._device = next(module.parameters()).device
        self._windows = Batches(
            streams, recipe.data, recipe.batch, recipe.context, (recipe.seed, recipe.purpose)
        )
        self.tokens = recipe.batch * recipe.context

    def batch(self, step: int) -> Batch:
        """Return {"tokens": [batch, context + 1] int64}, the windows of a step."""
        return {"tokens": torch.from_numpy(self._windows.rows(step))}

    def loss(self, part: Batch) -> torch.Tensor:
        """Return the mean cross-entropy, nats a token, of all but each row's first, a scalar."""
        tokens = part["tokens"].to(self._device)
        logits = self._module(input_ids=tokens[:, :-1]).logits
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def check_inputs(
    objective: str, roles: Iterable[str], recipe: Train, inputs: Mapping[str, Tensors]
) -> None:
    """Raise ConfigError unless the recipe and `inputs` have models in exactly these roles."""
    needed = sorted(roles)
    if not sorted(inputs) == sorted(recipe.inputs) == needed:
        read = next(sorted(models) for models in (inputs, recipe.inputs) if sorted(models) != needed)
        raise ConfigError(f"the objective {objective} reads the models {needed}, not {read}")


def check_streams(objective: str, recipe: Train, streams: Mapping[str, Ids]) -> None:
    """Raise ConfigError if a stream is missing, SourceChangedError if it does not have its digest."""
    lacking = sorted(set(recipe.data) - set(streams))
    if lacking or not recipe.data:
        lack = ", ".join(lacking) or "to read"
        raise ConfigError(f"the objective {objective} lacks the data {lack}")
    for name, digest in recipe.data_digests.items():
        if stream_digest(streams[name]) != digest:
            raise SourceChangedError(f"data {name!r} is not the data that the recipe names")
