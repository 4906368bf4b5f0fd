"""Operations of `Transform` recipes: the table of their names, and how one is carried out.

An operation is a class with `Params`, a pydantic model, and `apply(inputs, params, seed) -> Model`,
where `inputs` maps roles to models. A landed version never changes its result, its parameters or
their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from runs.errors import ConfigError
from weights import algorithms
from weights.recipes import Transform

if TYPE_CHECKING:
    from weights.model import Model

#: Name and version of an operation → its class.
OPERATIONS = {
    "decode@1": "weights.operations.decode:Decode",
    "encode@1": "weights.operations.encode:Encode",
    "float32@1": "weights.operations.float32:Float32",
    "interpolate@1": "weights.operations.interpolate:Interpolate",
    "qwen2-init@1": "weights.operations.qwen2_init:Qwen2Init",
}


def of(name: str) -> Any:
    """Return the class of an operation. Raises UnknownAlgorithmError."""
    return algorithms.find(OPERATIONS, name, "operation")


def complete(recipe: Transform) -> Transform:
    """Return the recipe with every default parameter written out. Raises ConfigError."""
    params = algorithms.complete(of(recipe.operation).Params, recipe.params, recipe.operation)
    return recipe.model_copy(update={"params": params})


def apply(recipe: Transform, inputs: Mapping[str, Model]) -> Model:
    """Carry out a transform: role → model in, a new model out.

    Raises ConfigError if a parameter is not written out, or roles are not those of the recipe.
    """
    operation = of(recipe.operation)
    params = algorithms.check_complete(operation.Params, recipe.params, recipe.operation)
    if set(inputs) != set(recipe.inputs):
        raise ConfigError(f"{recipe.operation}: the inputs must be {sorted(recipe.inputs)}")
    return operation().apply(inputs, params, recipe.seed)
