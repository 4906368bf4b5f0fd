"""Operations of `Transform` recipes: the table of their names, and the functions that apply them.

An operation is a class with `Params`, a pydantic model, and `apply(inputs, params, seed) -> Tensors`,
where `inputs` maps roles to models. An operation with `reads_streams` set gets the run's streams of
token ids as a fourth argument; its parameters name them by digest. One that takes minutes also has
`seconds`, with the arguments of `apply`. A landed version never changes its result, its parameters or
their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from agent_forge.runs.errors import ConfigError
from agent_forge.weights import algorithms
from agent_forge.weights.recipes import Train, Transform

if TYPE_CHECKING:
    from agent_forge.weights.tensors import Tensors
    from agent_forge.weights.training.windows import Ids

#: Name and version of an operation → its class.
OPERATIONS = {
    "average@1": "agent_forge.weights.operations.average:Average",
    "decode@1": "agent_forge.weights.operations.coding:Decode",
    "encode@1": "agent_forge.weights.operations.coding:Encode",
    "float32@1": "agent_forge.weights.operations.dtypes:Float32",
    "fresh@1": "agent_forge.weights.operations.fresh:Fresh",
    "interpolate@1": "agent_forge.weights.operations.interpolate:Interpolate",
    "mixture@1": "agent_forge.weights.operations.mixture:Mixture",
    "mixture@2": "agent_forge.weights.operations.mixture:RoundedMixture",
    "qwen2-init@1": "agent_forge.weights.operations.qwen2_init:Qwen2Init",
    "resized@1": "agent_forge.weights.operations.fresh:Resized",
    "rounded@1": "agent_forge.weights.operations.dtypes:Rounded",
    "svf-decompose@1": "agent_forge.weights.operations.svf:SvfDecompose",
    "svf-ones@1": "agent_forge.weights.operations.svf:SvfOnes",
    "ternary-feedback@1": "agent_forge.weights.operations.ternary_feedback:TernaryFeedback",
    "ternary-pack@1": "agent_forge.weights.operations.ternary_pack:TernaryPack",
    "thoughts-init@1": "agent_forge.weights.operations.thoughts:ThoughtsInit",
    "thoughts-removed@1": "agent_forge.weights.operations.thoughts:ThoughtsRemoved",
    "titans-mag-init@1": "agent_forge.weights.operations.titans_mag_init:TitansMagInit",
}


def of(name: str) -> Any:
    """Return the class of the operation NAME@VERSION. Raises UnknownAlgorithmError."""
    return algorithms.find(OPERATIONS, name, "operation")


def complete(recipe: Transform) -> Transform:
    """Return the Transform recipe with every default parameter written out. Raises ConfigError."""
    params = algorithms.complete(of(recipe.operation).Params, recipe.params, recipe.operation)
    return recipe.model_copy(update={"params": params})


def apply(
    recipe: Transform, inputs: Mapping[str, Tensors], streams: Callable[[], Mapping[str, Ids]] = dict
) -> Tensors:
    """Return the new model that a transform makes of its inputs, role → model.

    `streams` returns token ids by name; it is called for an operation that reads text only. Raises
    ConfigError if a parameter is not written out, or roles are not those of the recipe.
    """
    if set(inputs) != set(recipe.inputs):
        raise ConfigError(f"{recipe.operation}: the inputs must be {sorted(recipe.inputs)}")
    return of(recipe.operation)().apply(inputs, *_arguments(recipe, streams))


def seconds(
    models: Mapping[str, Train | Transform],
    input_of: Callable[[str, Mapping[str, Train | Transform]], Tensors],
    streams: Callable[[], Mapping[str, Ids]],
) -> dict[str, float]:
    """Return {name of a model: about how many seconds its operation takes here}, of long operations.

    `input_of` returns the model of a recipe's id, given all recipes by id; `streams` as for `apply`.
    """
    by_id = {recipe.id: recipe for recipe in models.values()}
    seconds_by_name: dict[str, float] = {}
    for name, recipe in models.items():
        if isinstance(recipe, Transform) and hasattr(of(recipe.operation), "seconds"):
            inputs = {role: input_of(id_, by_id) for role, id_ in recipe.inputs.items()}
            arguments = _arguments(recipe, streams)
            seconds_by_name[name] = of(recipe.operation)().seconds(inputs, *arguments)
    return seconds_by_name


def _arguments(recipe: Transform, streams: Callable[[], Mapping[str, Ids]]) -> tuple[object, ...]:
    """Return what an operation's functions take beside the inputs: parameters, seed, text if read."""
    operation = of(recipe.operation)
    params = algorithms.check_complete(operation.Params, recipe.params, recipe.operation)
    reads_streams = getattr(operation, "reads_streams", False)
    return (params, recipe.seed, streams()) if reads_streams else (params, recipe.seed)
