"""Training of models step by step, by `Train` recipes; cutting it into segments changes no bit.

`complete` writes out the defaults of a recipe; `loop.segment` carries out some of its steps.
"""

from __future__ import annotations

from pydantic import BaseModel

from agent_forge.runs.errors import ConfigError
from agent_forge.weights import algorithms
from agent_forge.weights.recipes import Algorithm, Train
from agent_forge.weights.training import objectives, optimisers, schedules


def complete(recipe: Train) -> Train:
    """Return the Train recipe with every default parameter written out. Raises ConfigError."""

    def whole(params: type[BaseModel], algorithm: Algorithm) -> Algorithm:
        written = algorithms.complete(params, algorithm.params, algorithm.name)
        return algorithm.model_copy(update={"params": written})

    changes = {
        "params": algorithms.complete(
            objectives.of(recipe.objective).Params, recipe.params, recipe.objective
        ),
        "optimiser": whole(optimisers.of(recipe.optimiser.name).Settings, recipe.optimiser),
        "schedule": whole(schedules.of(recipe.schedule.name), recipe.schedule),
    }
    return recipe.model_copy(update=changes)


def check(recipe: Train, first: int, last: int) -> None:
    """Raise ConfigError unless the recipe is complete and has the steps `first` … `last` − 1."""
    if complete(recipe) != recipe:
        raise ConfigError(
            "the recipe does not write out every parameter: "
            "agent_forge.weights.training.complete does so"
        )
    if not recipe.first <= first <= last <= recipe.upto:
        raise ConfigError(
            f"the recipe has steps {recipe.first} to {recipe.upto}, not {first} to {last}"
        )
