"""Objective `cem`: the loss of another objective, made smaller without gradients.

The method (`weights.training.cross_entropy`; Rubinstein & Kroese 2004) searches the trained numbers: a
step measures `points` of a normal distribution, all on the rows of that step. The next distribution is
that of the best points. The mean is the module's parameters, and the deviation is part of the state, so
a training that is cut after any step goes on with the same bits.

Transformer-Squared (arXiv 2501.06252, section 3.2) searches a handful of mixing weights in this way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field, ValidationInfo, field_validator

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training import cross_entropy, objectives
from agent_forge.weights.training.cross_entropy import Normal
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.objectives import Batch, Objective
from agent_forge.weights.training.objectives.inner import InnerParams
from agent_forge.weights.training.windows import Ids

#: Name of the deviations in the state, and prefix of the names of the inner objective's state.
DEVIATION, INNER = "deviation", "inner/"


class CemParams(InnerParams):
    """Parameters of the objective."""

    refused: ClassVar[tuple[str, ...]] = ("cem", "lora", "reinforce", "ternary")
    what: ClassVar[str] = "searches without gradients"

    #: Number of points of a step, the mean among them; and of the best ones, which are followed.
    points: int = Field(default=16, ge=2)
    elite: int = Field(default=4, ge=1)
    #: Standard deviation of the first points, and the least one.
    spread: float = Field(default=0.1, gt=0)
    least: float = Field(default=0.001, gt=0)

    @field_validator("elite")
    @classmethod
    def _some(cls, given: int, info: ValidationInfo) -> int:
        points = info.data.get("points", given)
        if given > points:
            raise ValueError(f"the best {given} of {points} points cannot be taken")
        return given


class Cem:
    """Objective: a search for the trained numbers by the loss of another objective."""

    Params = CemParams

    def __init__(
        self,
        recipe: Train,
        module: torch.nn.Module,
        streams: Mapping[str, Ids],
        inputs: Mapping[str, Tensors],
    ) -> None:
        """Build the objective; `module` is that of `Cem.module`.

        Raises ConfigError for an optimiser, which this objective has no use for, and the errors of the
        objective.
        """
        if recipe.optimiser.name.partition("@")[0] != "none":
            raise ConfigError(
                f"the objective cem moves the parameters itself: its optimiser is none@1, not "
                f"{recipe.optimiser.name}"
            )
        self._recipe, params = recipe, CemParams.model_validate(recipe.params)
        self._params = params
        objective_class = objectives.of(params.objective)
        self._inner: Objective = objective_class(_inner(recipe), module, streams, inputs)
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        count = sum(p.numel() for p in self._parameters)
        self._deviation = torch.full((count,), params.spread, dtype=torch.float64)
        self._device = next(module.parameters()).device
        self.tokens = self._inner.tokens * params.points

    @staticmethod
    def module(
        recipe: Train, start: Tensors, inputs: Mapping[str, Tensors], device: str
    ) -> torch.nn.Module:
        """Return the module to train: that of the objective inside, or the model itself."""
        build_module = getattr(objectives.of(recipe.params["objective"]), "module", None)
        if build_module is not None:
            return build_module(_inner(recipe), start, inputs, device)
        return modules.build(start, device, recipe.attention)

    def batch(self, step: int) -> Batch:
        """Return the inner objective's rows of a step, on the processor."""
        return self._inner.batch(step)

    def loss(self, part: Batch) -> torch.Tensor:
        """Return the inner objective's loss of some rows at the mean of the points, a scalar."""
        return self._inner.loss(part)

    @torch.no_grad()
    def move(self, step: int) -> tuple[float, float]:
        """Do a step in place; return (loss before it, distance that the mean moved).

        A point whose loss is not finite comes last.
        """
        recipe, params, batch = self._recipe, self._params, self.batch(step)
        before = torch.cat([p.flatten() for p in self._parameters]).to("cpu", torch.float64)
        normal = Normal(tuple(before.tolist()), tuple(self._deviation.tolist()))
        key = (recipe.seed, recipe.purpose, "cem", step)
        points = cross_entropy.drawn(normal, params.points, *key)
        losses = []
        for point in points:
            self._set(point)
            losses.append(self._measured(batch))
        scores = [loss if math.isfinite(loss) else math.inf for loss in losses]
        fitted_normal = cross_entropy.followed(points, scores, params.elite, params.least)
        self._set(fitted_normal.mean)
        self._deviation = torch.tensor(fitted_normal.deviation, dtype=torch.float64)
        moved = torch.tensor(fitted_normal.mean, dtype=torch.float64) - before
        return losses[0], float(moved.norm())

    def _measured(self, batch: Batch) -> float:
        """Return the mean loss of a step's rows, computed in `accumulation` parts."""
        parts, bf16 = self._recipe.accumulation, self._recipe.precision == "bfloat16"
        rows, total = self._recipe.batch // parts, 0.0
        for index in range(parts):
            part = {name: t[index * rows : (index + 1) * rows] for name, t in batch.items()}
            with torch.autocast(self._device.type, torch.bfloat16, enabled=bf16):
                total += float(self._inner.loss(part)) / parts
        return total

    def _set(self, values: tuple[float, ...]) -> None:
        """Write the values into the parameters, in the parameters' order."""
        flat, at = torch.tensor(values, dtype=torch.float32), 0
        for parameter in self._parameters:
            parameter.copy_(flat[at : at + parameter.numel()].view_as(parameter))
            at += parameter.numel()

    def state(self) -> dict[str, torch.Tensor]:
        """Return "deviation" → float64 [numbers], and "inner/NAME" → the inner objective's state."""
        inner = {f"{INNER}{name}": tensor for name, tensor in self._inner.state().items()}
        return {DEVIATION: self._deviation.clone(), **inner}

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore the state from the result of `state`. Raises KeyError for other names."""
        rest = dict(tensors)
        self._deviation = rest.pop(DEVIATION).clone()
        if strange := [name for name in rest if not name.startswith(INNER)]:
            raise KeyError(strange[0])
        self._inner.load({name.removeprefix(INNER): tensor for name, tensor in rest.items()})


def _inner(recipe: Train) -> Train:
    """Return the Train recipe with the inner objective and its parameters in place of `cem`'s."""
    fields = {"objective": recipe.params["objective"], "params": recipe.params["params"]}
    return recipe.model_copy(update=fields)
