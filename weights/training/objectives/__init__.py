"""Objectives of trainings, one a file: what a step's rows are, and their loss.

An objective is a class with `Params`, a pydantic model, and:

    Objective(recipe, module, streams, inputs)   checks what it is given
    batch(step) -> Batch           the rows of a step: a function of the recipe and the step alone; of
                                   the weights before it, too, if the model writes them itself
    loss(part) -> Tensor           mean loss of some rows of a batch, a differentiable scalar
    tokens -> int                  tokens of a step
    state() -> dict[str, Tensor]   what else lives longer than a step; load(tensors) takes it back

One that trains other parameters than a model's weights builds its module itself:

    module(recipe, start, inputs, device)   static; `start` has what is trained, by name

One that moves the parameters itself, without gradients, does all of a step; its optimiser is `none`:

    move(step) -> (loss, distance)   the loss before the step, and how far the parameters moved

It never reads torch's global generators: random numbers come from keys with the recipe's seed and
purpose, and the step.
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
    "bake@1": "agent_forge.weights.training.objectives.bake:Bake",
    "cem@1": "agent_forge.weights.training.objectives.cem:Cem",
    "distil@1": "agent_forge.weights.training.objectives.distil:Distil",
    "lm@1": "agent_forge.weights.training.objectives.next_token:NextToken",
    "lora@1": "agent_forge.weights.training.objectives.lora:Lora",
    "reinforce@1": "agent_forge.weights.training.objectives.reinforce:Reinforce",
    "svf@1": "agent_forge.weights.training.objectives.svf:Svf",
    "svf@2": "agent_forge.weights.training.objectives.svf_of:SvfOf",
    "ternary@1": "agent_forge.weights.training.objectives.ternary:Ternary",
    "thoughts@1": "agent_forge.weights.training.objectives.thoughts:ThoughtsObjective",
}

#: Tensors of a step by name, all with the step's rows as first dimension.
Batch = Mapping[str, "torch.Tensor"]


class Objective(Protocol):
    """The interface of an objective."""

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        ...

    def batch(self, step: int) -> Batch:
        """Return the rows of a step, on the processor."""
        ...

    def loss(self, part: Batch) -> torch.Tensor:
        """Return the mean loss of some rows, on the module's device."""
        ...

    def state(self) -> dict[str, torch.Tensor]:
        """Return copies of what lives longer than a step, by name."""
        ...

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take back what `state` returned."""
        ...


def of(name: str) -> Any:
    """Return the class of an objective. Raises UnknownAlgorithmError."""
    return algorithms.find(OBJECTIVES, name, "objective")
