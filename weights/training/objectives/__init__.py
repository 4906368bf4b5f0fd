"""Objectives of trainings, one a file: what a step's rows are, and their loss.

An objective is a class with `Params`, a pydantic model, and:

    Objective(recipe, module, streams, inputs)   checks its arguments
    batch(step) -> Batch           the rows of a step: a function of the recipe and the step alone, or
                                   of the weights before it, too, if the model writes the rows
    loss(part) -> Tensor           mean loss of some rows of a batch, a differentiable scalar
    tokens -> int                  number of tokens of a step
    state() -> dict[str, Tensor]   what else lives longer than a step; load(tensors) restores it

An objective that trains other parameters than a model's weights builds its module:

    module(recipe, start, inputs, device)   static; `start` has the trained parameters, by name

An objective that moves the parameters without gradients does all of a step; its optimiser is `none`:

    move(step) -> (loss, distance)   the loss before the step, and how far the parameters moved

An objective never reads torch's global generators: random numbers come from keys with the recipe's seed
and purpose, and the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from agent_forge.weights import algorithms

if TYPE_CHECKING:
    import torch

#: Name and version of an objective → its class.
OBJECTIVES = {
    "answers@1": "agent_forge.weights.training.objectives.answers:Answers",
    "answers@2": "agent_forge.weights.training.objectives.answers_beside:AnswersBeside",
    "bake@1": "agent_forge.weights.training.objectives.bake:BakeObjective",
    "bake@2": "agent_forge.weights.training.objectives.bake:ReverseBake",
    "cem@1": "agent_forge.weights.training.objectives.cem:Cem",
    "distil@1": "agent_forge.weights.training.objectives.distil:Distil",
    "lm@1": "agent_forge.weights.training.objectives.next_token:NextToken",
    "lora@1": "agent_forge.weights.training.objectives.lora:Lora",
    "lora@2": "agent_forge.weights.training.objectives.lora:FusedLora",
    "preference@1": "agent_forge.weights.training.objectives.preference:Preference",
    "reinforce@1": "agent_forge.weights.training.objectives.reinforce:Reinforce",
    "reinforce@2": "agent_forge.weights.training.objectives.rewarded:Rewarded",
    "sft@1": "agent_forge.weights.training.objectives.sft:Sft",
    "svf@1": "agent_forge.weights.training.objectives.svf:Svf",
    "svf@2": "agent_forge.weights.training.objectives.svf:SvfOf",
    "ternary@1": "agent_forge.weights.training.objectives.ternary:TernaryObjective",
    "thoughts@1": "agent_forge.weights.training.objectives.thoughts:ThoughtsObjective",
}

#: Tensors of a step by name, all with the step's rows as first dimension.
Batch = Mapping[str, "torch.Tensor"]


class Objective(Protocol):
    """The interface of an objective."""

    @property
    def tokens(self) -> int:
        """Number of tokens of a step."""
        ...

    def batch(self, step: int) -> Batch:
        """Return the rows of a step: tensors by name, on the processor."""
        ...

    def loss(self, part: Batch) -> torch.Tensor:
        """Return the mean loss of some rows of a batch, a scalar on the module's device."""
        ...

    def state(self) -> dict[str, torch.Tensor]:
        """Return name → copy of each tensor that lives longer than a step."""
        ...

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore the state from the result of `state`."""
        ...


def of(name: str) -> Any:
    """Return the class of the objective NAME@VERSION. Raises UnknownAlgorithmError."""
    return algorithms.find(OBJECTIVES, name, "objective")
