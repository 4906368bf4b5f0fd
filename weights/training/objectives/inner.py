"""Objectives that have another objective inside them, and their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import Field, ValidationInfo, field_validator

from agent_forge.weights import algorithms
from agent_forge.weights.recipes import Frozen, Train, Versioned
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training import objectives
from agent_forge.weights.training.objectives import Batch, Objective
from agent_forge.weights.training.windows import Ids


class InnerParams(Frozen):
    """The objective inside, and its parameters, all of them written out."""

    #: Names of objectives that cannot be inside, and the subject of the error's sentence.
    refused: ClassVar[tuple[str, ...]] = ()
    what: ClassVar[str] = ""

    objective: Versioned
    params: dict[str, Any] = Field(default={}, validate_default=True)

    @field_validator("objective")
    @classmethod
    def _serves(cls, value: str) -> str:
        if value.partition("@")[0] in cls.refused:
            raise ValueError(f"{cls.what} do not serve the objective {value}")
        return value

    @field_validator("params")
    @classmethod
    def _whole(cls, value: dict[str, object], info: ValidationInfo) -> dict[str, object]:
        """Return the parameters of the inner objective with every default written out."""
        name = info.data.get("objective")
        return value if name is None else algorithms.complete(objectives.of(name).Params, value, name)


class Outer:
    """An objective with another one inside it; what a subclass leaves out is the inner one's."""

    def __init__(
        self,
        params: InnerParams,
        recipe: Train,
        module: torch.nn.Module,
        streams: Mapping[str, Ids],
        inputs: Mapping[str, Tensors],
    ) -> None:
        """Build the inner objective for a recipe, with its name and parameters. Raises its errors."""
        recipe = recipe.model_copy(update={"objective": params.objective, "params": params.params})
        inner_class = objectives.of(params.objective)
        self._inner: Objective = inner_class(recipe, module, streams, inputs)

    @property
    def tokens(self) -> int:
        """Number of tokens of a step."""
        return self._inner.tokens

    def batch(self, step: int) -> Batch:
        """Return the inner objective's rows of a step, on the processor."""
        return self._inner.batch(step)

    def loss(self, part: Batch) -> torch.Tensor:
        """Return the inner objective's mean loss of some rows, a scalar on the module's device."""
        return self._inner.loss(part)

    def state(self) -> dict[str, torch.Tensor]:
        """Return the inner objective's state, by name."""
        return self._inner.state()

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore the state from the result of `state`. Raises KeyError for other names."""
        self._inner.load(tensors)
