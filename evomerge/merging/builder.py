"""Builder of a recipe's weights, tensor by tensor, in memory.

All arithmetic is on task vectors θ − θ₀ in float32. The result is rounded once, to the output dtype
(the base's). The result does not depend on the number of threads (`kernels/chunks.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from pydantic import BaseModel

from evomerge.merging import dataflow, method_registry, pipelines
from evomerge.merging.kernels import buffer_pool
from evomerge.merging.kernels.buffer_pool import ALIGNED
from evomerge.merging.kernels.chunks import SHARE, Pool, Stretches, as_rows, finite
from evomerge.merging.kernels.chunks import Merge as Merging
from evomerge.merging.kernels.fused_merge import Program
from evomerge.merging.methods import frankenmerge
from evomerge.recipes import layer_choice, tensor_groups
from evomerge.recipes.recipe import (
    Flow,
    Grouped,
    Merge,
    Mutate,
    Noise,
    Pipeline,
    Recipe,
    Source,
    genome,
    path,
)
from runs.errors import ConfigError
from weights import block_names, randomness

Weights = Mapping[str, torch.Tensor]


class Builder:
    """Builder of recipes from their inputs.

    `known` holds every recipe by id. `stored` returns the weights of an id (always for sources), or
    None if they must be rebuilt.
    """

    def __init__(
        self, known: Mapping[str, Recipe], stored: Callable[[str], Weights | None]
    ) -> None:
        self._known = known
        self._stored = stored

    def weights(self, recipe_id: str) -> Weights:
        """Return the weights of a recipe: the stored ones, or build them, the ancestors first."""
        stored = self._stored(recipe_id)
        return self.build(self._known[recipe_id]) if stored is None else stored

    def build(self, recipe: Recipe) -> Weights:
        """Compute the weights of a recipe. They may hold NaN or Inf: see `not_finite`.

        Raise KeyError if the recipe is a source without stored weights.
        """
        if isinstance(recipe, Source):
            stored = self._stored(recipe.id)
            if stored is None:
                raise KeyError(f"source {recipe.id} is not at hand")
            return stored
        if isinstance(recipe, Mutate):
            return self._mutated(recipe)
        return self._merged(recipe) if isinstance(recipe, Merge) else self._stated(recipe)

    def _stated(self, recipe: Pipeline | Grouped | Flow) -> Weights:
        if isinstance(recipe, Flow):
            inputs = [self.weights(i) for i in recipe.inputs]
            return dataflow.build(recipe, self._grouped(recipe.merged), inputs)
        return self._pipeline(recipe) if isinstance(recipe, Pipeline) else self._grouped(recipe)

    def origin(self, recipe: Recipe, base: Weights) -> Weights:
        """Return the zero of a model's task vector: the base, along the model's path if any."""
        taken = path(recipe, self._known)
        return base if taken is None else dataflow.origin(taken, base)

    def _pipeline(self, recipe: Pipeline) -> Weights:
        base = self.weights(recipe.base)
        inputs = [self.weights(i) for i in recipe.inputs]
        check_layers(recipe, base)
        return _each(base, lambda name, pool: _of_pipeline(recipe, name, base, inputs, pool))

    def several(self, recipes: Sequence[Pipeline]) -> list[Weights]:
        """Build pipelines with the same inputs and base, which are read once for all of them.

        Raise ValueError if the inputs or bases differ.
        """
        base = self.weights(recipes[0].base)
        inputs = [self.weights(i) for i in recipes[0].inputs]
        if {(r.base, r.inputs) for r in recipes} != {(recipes[0].base, recipes[0].inputs)}:
            raise ValueError("pipelines that are built together have the same base and inputs")
        for recipe in recipes:
            check_layers(recipe, base)
        made = [_room(base) for _ in recipes]
        _side_by_side(
            base,
            lambda name, pool: _all_of(
                recipes, name, base, inputs, [weights[name] for weights in made], pool
            ),
        )
        return list(made)

    def _merged(self, recipe: Merge) -> Weights:
        inputs = [self.weights(i) for i in recipe.inputs]
        base = self.weights(recipe.base) if recipe.base else None
        origin = inputs[0] if base is None else base
        if recipe.method == "frankenmerge":
            return _taken(recipe, origin, inputs)
        params = method_registry.parameters(recipe.method, recipe.params)

        def plan(name: str, pool: Pool) -> tuple[Stretches, Merging]:
            zero = None if base is None else as_rows(base[name])
            work = Stretches(name, zero, [as_rows(i[name]) for i in inputs], pool)
            return work, method_registry.prepare(recipe.method, work, params, recipe.seed)

        return _each(origin, plan)

    def _grouped(self, recipe: Grouped) -> Weights:
        base = self.weights(recipe.base)
        inputs = [self.weights(i) for i in recipe.inputs]
        blocks, params = block_names.count(list(base)), check_groups(recipe)

        def plan(name: str, pool: Pool) -> tuple[Stretches, Merging]:
            work = Stretches(name, as_rows(base[name]), [as_rows(i[name]) for i in inputs], pool)
            own = params[tensor_groups.of(name, blocks, recipe.depths)]
            return work, method_registry.prepare(recipe.method, work, own, recipe.seed)

        return _each(base, plan)

    def _mutated(self, recipe: Mutate) -> Weights:
        base = self.origin(recipe, self.weights(recipe.base))
        if recipe.pipeline is None:
            result, noises = self.weights(recipe.parent), ()
        else:
            result, noises = self._stated(recipe.pipeline), genome(recipe, self._known).noises
        if recipe.pipeline is None and recipe.noise is not None:
            noises = (recipe.noise,)
        for noise in noises:
            result = _add_noise(noise, base, result)
        return result


def check_layers(recipe: Pipeline, base: Weights) -> None:
    """Raise ConfigError if the recipe's layers do not fit the model."""
    if recipe.selection == "frankenmerge":
        count, layers = block_names.count(list(base)), recipe.genes.layers or ()
        frankenmerge.check(layers, count, len(recipe.inputs), whole=False)


def check_groups(recipe: Grouped) -> list[BaseModel]:
    """Return the checked parameters of every group. Raise ConfigError."""
    if len(recipe.params) != tensor_groups.count(recipe.depths):
        count = tensor_groups.count(recipe.depths)
        raise ConfigError(
            f"{recipe.depths} layer groups are {count} groups of tensors, the recipe "
            f"has parameters for {len(recipe.params)}"
        )
    return [method_registry.parameters(recipe.method, given) for given in recipe.params]


def _of_pipeline(
    recipe: Pipeline, name: str, base: Weights, inputs: Sequence[Weights], pool: Pool
) -> tuple[Stretches, Merging]:
    """Return the stretches and the merge of one tensor of a pipeline.

    If a block is taken whole from one input, only that input is read.
    """
    chosen = pipelines.taken(recipe, name)
    read = [inputs[chosen - 1]] if chosen else inputs
    work = Stretches(name, as_rows(base[name]), [as_rows(i[name]) for i in read], pool)
    if chosen:
        return work, Program(1, work.columns, scale=recipe.genes.scale)
    return work, pipelines.prepare(work, recipe)


def _all_of(
    recipes: Sequence[Pipeline],
    name: str,
    base: Weights,
    inputs: Sequence[Weights],
    outs: Sequence[torch.Tensor],
    pool: Pool,
) -> None:
    """Build one tensor of several pipelines, which share task vectors, norms and thresholds."""
    work = Stretches(name, as_rows(base[name]), [as_rows(i[name]) for i in inputs], pool)
    merges = [pipelines.prepare(work, recipe) for recipe in recipes]  # thresholds are shared
    _run(work, merges, [as_rows(out) for out in outs])


def _run(work: Stretches, merges: Sequence[Merging], outs: Sequence[torch.Tensor]) -> None:
    """Merge every stretch of a tensor; each of `merges` writes into its own rows of `outs`."""
    work.pool.run([
        lambda cut=cut: work.run(merges, cut, [out[cut] for out in outs])
        for cut in work.joined(merges)
    ])  # fmt: skip


def _taken(recipe: Merge, origin: Weights, inputs: Sequence[Weights]) -> Weights:
    """Return a frankenmerge alone: each tensor from one of the inputs, in the origin's dtype."""
    count = block_names.count(list(origin))
    choice = frankenmerge.Params(**recipe.params).layers
    frankenmerge.check(choice, count, len(inputs), whole=True)
    return {
        name: inputs[choice[layer_choice.group(name, count)]][name].to(tensor.dtype, copy=True)
        for name, tensor in origin.items()
    }


def _each(
    base: Weights, plan: Callable[[str, Pool], tuple[Stretches, Merging]]
) -> dict[str, torch.Tensor]:
    """Return every tensor by name, in the base's dtype; tensors of integers are copied."""
    result = _room(base)

    def build(name: str, pool: Pool) -> None:
        work, merge = plan(name, pool)
        _run(work, [merge], [as_rows(result[name])])

    _side_by_side(base, build)
    return result


def _side_by_side(base: Weights, build: Callable[[str, Pool], None]) -> None:
    """Build every floating-point tensor, by its name.

    Most tensors are built side by side, one thread each, the largest first. A tensor that is too
    large for one thread is built before them, with its stretches side by side. The choice changes
    only the time.
    """
    floating = [name for name, origin in base.items() if origin.is_floating_point()]
    floating.sort(key=lambda name: -base[name].numel())
    total = sum(base[name].numel() for name in floating)
    with Pool() as pool:
        alone, most = Pool(1), total // (pool.threads * SHARE)
        for name in floating:
            if base[name].numel() > most:
                build(name, pool)
        pool.run([
            lambda name=name: build(name, alone) for name in floating if base[name].numel() <= most
        ])  # fmt: skip


def _room(base: Weights) -> dict[str, torch.Tensor]:
    """Return memory for tensors like the base's, in one piece; copy tensors of integers."""
    sizes = {n: -(-t.numel() * t.element_size() // ALIGNED) * ALIGNED for n, t in base.items()}
    memory, start = buffer_pool.take(sum(sizes.values())), 0
    result: dict[str, torch.Tensor] = {}
    for name, origin in base.items():
        part = memory[start : start + origin.numel() * origin.element_size()]
        result[name] = torch.from_numpy(part).view(origin.dtype).view(origin.shape)
        if not origin.is_floating_point():
            result[name].copy_(origin)
        start += sizes[name]
    return result


def _add_noise(noise: Noise, base: Weights, parent: Weights) -> Weights:
    with Pool() as pool:
        jobs = [
            lambda name=name, origin=origin: _noisy_or_copied(noise, name, origin, parent[name])
            for name, origin in base.items()
        ]
        return dict(zip(base, pool.run(jobs), strict=True))


def _noisy_or_copied(
    noise: Noise, name: str, origin: torch.Tensor, parent: torch.Tensor
) -> torch.Tensor:
    if not origin.is_floating_point():
        return origin.clone()
    return noisy(noise, name, origin, parent).to(origin.dtype)


def noisy(noise: Noise, name: str, origin: torch.Tensor, parent: torch.Tensor) -> torch.Tensor:
    """Return the parent's tensor with noise on a share of its elements, in the parent's dtype.

    An element is touched if its lane (a 16-bit random number) is below the rate. The k-th touched
    element gets the k-th Gaussian value of the tensor's own stream.
    """
    result = parent.clone()
    work = Stretches(name, as_rows(origin), [as_rows(parent)], Pool(1))
    places = torch.cat([_touched(noise, work, cut) for cut in work.cuts])
    if not len(places):
        return result
    values = torch.from_numpy(randomness.gaussian(len(places), noise.seed, name, "noise"))
    if noise.relative_to == "absolute":
        values *= noise.sigma
    else:
        norm = float(work.gram()[0, 0]) ** 0.5
        values *= noise.sigma * norm / float(np.square(values.numpy()).sum()) ** 0.5
    flat = result.view(-1)
    flat[places] = (flat[places].to(torch.float32) + values.to(torch.float32)).to(result.dtype)
    return result


def _touched(noise: Noise, work: Stretches, cut: slice) -> torch.Tensor:
    """Return the elements of one stretch that get noise, as indices in the whole tensor."""
    start, count = cut.start * work.columns, (cut.stop - cut.start) * work.columns
    lanes = randomness.lanes(count, noise.seed, work.name, "mask", start=start)
    return torch.from_numpy((lanes < round(noise.rate * randomness.LANES)).nonzero()[0] + start)


def not_finite(weights: Weights) -> str | None:
    """Return the name of the first tensor that holds NaN or Inf, or None."""
    return next((name for name, tensor in weights.items() if not finite(tensor)), None)
