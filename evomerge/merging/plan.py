"""Plan of a recipe: the operation that makes each tensor. Pure: dtypes and shapes in, no weights.

All arithmetic is on task vectors θ − θ₀ in float32. The result is rounded once, to the output dtype
(the base's). Steps of a path and noise round again, because their input is a rounded model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pydantic import BaseModel

from agent_forge.evomerge.merging import dataflow, method_registry, pipelines
from agent_forge.evomerge.merging.methods import frankenmerge
from agent_forge.evomerge.merging.tensor_ops import (
    Plan,
    Read,
    Specs,
    TensorOp,
    TensorSpec,
    copied,
    merged,
)
from agent_forge.evomerge.recipes import tensor_groups
from agent_forge.evomerge.recipes.recipe import (
    Flow,
    Grouped,
    Merge,
    Mutate,
    Pipeline,
    Recipe,
    Source,
    genome,
    path,
)
from agent_forge.runs.errors import ConfigError
from agent_forge.weights import block_names


def reads(recipe: Recipe) -> tuple[str, ...]:
    """Return the ids of the models that a recipe's plan reads; the first one has all the tensors."""
    if isinstance(recipe, Source):
        return (recipe.id,)
    if isinstance(recipe, Merge):
        first = recipe.inputs[0] if recipe.base is None else recipe.base
        return tuple(dict.fromkeys((first, *recipe.inputs)))
    if isinstance(recipe, Mutate) and recipe.pipeline is None:
        return tuple(dict.fromkeys((recipe.base, recipe.parent)))
    stated = recipe.pipeline if isinstance(recipe, Mutate) else recipe
    assert stated is not None
    return tuple(dict.fromkeys((recipe.base, stated.base, *stated.inputs)))


def plan(recipe: Recipe, recipes: Mapping[str, Recipe], specs: Specs) -> Plan:
    """Return a recipe's operations, one for each tensor, in the order of the base's tensors.

    `recipes` has every recipe by id; `specs` has the models that `reads` names. Raise ConfigError for
    parameters, layers or paths that do not fit the model.
    """
    match recipe:
        case Source():
            return _copies(recipe.id, specs)
        case Merge():
            return _merge(recipe, specs)
        case Pipeline():
            return _pipeline(recipe, specs)
        case Grouped():
            return _grouped(recipe, specs)
        case Flow():
            return _flow(recipe, specs)
        case Mutate():
            return _mutated(recipe, recipes, specs)


def _copies(model: str, specs: Specs) -> Plan:
    return [copied(name, spec, Read(model, name)) for name, spec in specs[model].items()]


def _each(model: str, specs: Specs, make: Callable[[str, TensorSpec], TensorOp]) -> Plan:
    """Return one operation for each tensor of a model; tensors of integers are copied from it."""
    return [
        make(name, spec) if spec.dtype.is_floating_point else copied(name, spec, Read(model, name))
        for name, spec in specs[model].items()
    ]


def _merge(recipe: Merge, specs: Specs) -> Plan:
    first = recipe.inputs[0] if recipe.base is None else recipe.base
    if recipe.method == "frankenmerge":
        return _taken(recipe, first, specs)
    params = method_registry.parameters(recipe.method, recipe.params)

    def make(name: str, spec: TensorSpec) -> TensorOp:
        inputs = [Read(model, name) for model in recipe.inputs]
        base = None if recipe.base is None else Read(recipe.base, name)
        return merged(name, spec, recipe.method, params, recipe.seed, inputs, base)

    return _each(first, specs, make)


def _taken(recipe: Merge, first: str, specs: Specs) -> Plan:
    """Return the operations of a frankenmerge alone: copies of the inputs, in the origin's dtype."""
    count = block_names.count(list(specs[first]))
    choice = frankenmerge.Params(**recipe.params).layers
    frankenmerge.check(choice, count, len(recipe.inputs), whole=True)
    ops = []
    for name, spec in specs[first].items():
        model = recipe.inputs[choice[tensor_groups.group(name, count)]]
        own_spec = TensorSpec(spec.dtype, specs[model][name].shape)
        ops.append(copied(name, own_spec, Read(model, name)))
    return ops


def _pipeline(recipe: Pipeline, specs: Specs) -> Plan:
    """Return a pipeline's operations; of a block that is taken whole, only that input is read."""
    genes = recipe.genes
    if recipe.selection == "frankenmerge":
        count = block_names.count(list(specs[recipe.base]))
        frankenmerge.check(genes.layers or (), count, len(recipe.inputs), whole=False)
    params = pipelines.Params(name=recipe.name, genes=genes)
    alone = method_registry.parameters("passthrough", {"scale": genes.scale})

    def make(name: str, spec: TensorSpec) -> TensorOp:
        base, chosen = Read(recipe.base, name), pipelines.taken(recipe.selection, genes, name)
        if chosen:
            only = [Read(recipe.inputs[chosen - 1], name)]
            return merged(name, spec, "passthrough", alone, recipe.seed, only, base)
        inputs = [Read(model, name) for model in recipe.inputs]
        return merged(name, spec, "stages", params, recipe.seed, inputs, base)

    return _each(recipe.base, specs, make)


def _grouped(recipe: Grouped, specs: Specs) -> Plan:
    blocks, params = block_names.count(list(specs[recipe.base])), check_groups(recipe)

    def make(name: str, spec: TensorSpec) -> TensorOp:
        group_params = params[tensor_groups.of(name, blocks, recipe.depths)]
        inputs = [Read(model, name) for model in recipe.inputs]
        base = Read(recipe.base, name)
        return merged(name, spec, recipe.method, group_params, recipe.seed, inputs, base)

    return _each(recipe.base, specs, make)


def check_groups(recipe: Grouped) -> list[BaseModel]:
    """Return the checked parameters of every group. Raise ConfigError."""
    if len(recipe.params) != tensor_groups.count(recipe.depths):
        count = tensor_groups.count(recipe.depths)
        raise ConfigError(
            f"{recipe.depths} layer groups are {count} groups of tensors, the recipe "
            f"has parameters for {len(recipe.params)}"
        )
    return [method_registry.parameters(recipe.method, group_params) for group_params in recipe.params]


def _flow(recipe: Flow, specs: Specs) -> Plan:
    """Return the operations of a path; of the merge, only the blocks on the path are made."""
    merge = {op.name: op for op in _grouped(recipe.merged, specs)}
    dataflow.check(recipe, block_names.count(list(merge)))
    ops = []
    for name, model, source_name, factor in dataflow.along(recipe, list(merge)):
        op = merge[source_name]
        if model:
            donor = recipe.inputs[model - 1]
            op = copied(
                source_name,
                TensorSpec(op.dtype, specs[donor][source_name].shape),
                Read(donor, source_name),
            )
        ops.append(replace(op, name=name, factor=factor))
    return ops


def _mutated(recipe: Mutate, recipes: Mapping[str, Recipe], specs: Specs) -> Plan:
    if recipe.pipeline is None:
        below = _copies(recipe.parent, specs)
        noises = () if recipe.noise is None else (recipe.noise,)
    else:
        below = plan(recipe.pipeline, recipes, specs)
        noises = genome(recipe, recipes).noises
    if not noises:
        return below
    ops, base = {op.name: op for op in below}, specs[recipe.base]
    taken = path(recipe, recipes)
    names = [(n, n, 1.0) for n in base]
    if taken is not None:
        names = [
            (name, donor_name, factor)
            for name, _, donor_name, factor in dataflow.along(taken, list(base))
        ]
    noisy_ops = []
    for name, source_name, factor in names:
        origin = Read(recipe.base, source_name)
        if not base[source_name].dtype.is_floating_point:
            noisy_ops.append(copied(name, base[source_name], origin))
            continue
        noisy_ops.append(
            replace(
                ops[name],
                dtype=base[source_name].dtype,
                noises=noises,
                origin=origin,
                origin_factor=factor,
            )
        )
    return noisy_ops
