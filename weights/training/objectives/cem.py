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
from typing_extensions import override

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training import cross_entropy, objectives
from agent_forge.weights.training.cross_entropy import Normal
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.objectives import Batch
from agent_forge.weights.training.objectives.inner import InnerParams, Outer
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
    def _some(cls, best: int, info: ValidationInfo) -> int:
        points = info.data.get("points", best)
        if best > points:
            raise ValueError(f"the best {best} of {points} points cannot be taken")
        return best


class Cem(Outer):
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
        super().__init__(params, recipe, module, streams, inputs)
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        count = sum(p.numel() for p in self._parameters)
        self._deviation = torch.full((count,), params.spread, dtype=torch.float64)
        self._device = next(module.parameters()).device

    @property
    @override
    def tokens(self) -> int:
        return super().tokens * self._params.points

    @staticmethod
    def module(
        recipe: Train, start: Tensors, inputs: Mapping[str, Tensors], device: str
    ) -> torch.nn.Module:
        """Return the module to train: that of the objective inside, or the model itself."""
        build_module = getattr(objectives.of(recipe.params["objective"]), "module", None)
        if build_module is not None:
            fields = {"objective": recipe.params["objective"], "params": recipe.params["params"]}
            return build_module(recipe.model_copy(update=fields), start, inputs, device)
        return modules.build(start, device, recipe.attention)

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

    @override
    def state(self) -> dict[str, torch.Tensor]:
        """Return "deviation" → float64 [numbers], and "inner/NAME" → the inner objective's state."""
        inner = {f"{INNER}{name}": tensor for name, tensor in self._inner.state().items()}
        return {DEVIATION: self._deviation.clone(), **inner}

    @override
    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        rest = dict(tensors)
        self._deviation = rest.pop(DEVIATION).clone()
        if strange := [name for name in rest if not name.startswith(INNER)]:
            raise KeyError(strange[0])
        self._inner.load({name.removeprefix(INNER): tensor for name, tensor in rest.items()})
