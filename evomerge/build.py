"""Recipe → weights, fused in float32, tensor by tensor.

All mathematics is on task vectors θ − θ₀ in float32; the result is rounded once, to the output
dtype (the base's). Nothing depends on the number of threads: elementwise operations do not, and
reductions are in `methods.reduce`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from evomerge import randomness
from evomerge.methods import dare, dfs, frankenmerge, linear, slerp, task_arithmetic, ties
from evomerge.methods.reduce import square_norm
from evomerge.recipe import Merge, Mutate, Noise, Pipeline, Recipe, Source, genome

Weights = Mapping[str, torch.Tensor]


class Builder:
    """Builds recipes from their inputs.

    `known` holds every recipe by id; `stored` gives the weights of an id where they are at hand
    (always for sources) and None where they must be rebuilt.
    """

    def __init__(
        self, known: Mapping[str, Recipe], stored: Callable[[str], Weights | None]
    ) -> None:
        self._known = known
        self._stored = stored

    def weights(self, recipe_id: str) -> Weights:
        """The weights of a recipe: those at hand, or built, its ancestors first."""
        stored = self._stored(recipe_id)
        return self.build(self._known[recipe_id]) if stored is None else stored

    def build(self, recipe: Recipe) -> Weights:
        """The weights of a recipe, computed. They may hold NaN or Inf: see `not_finite`."""
        if isinstance(recipe, Source):
            stored = self._stored(recipe.id)
            if stored is None:
                raise KeyError(f"source {recipe.id} is not at hand")
            return stored
        if isinstance(recipe, Mutate):
            return self._mutated(recipe)
        return self._pipeline(recipe) if isinstance(recipe, Pipeline) else self._merged(recipe)

    def _pipeline(self, recipe: Pipeline) -> Weights:
        base = self.weights(recipe.base)
        inputs = [self.weights(i) for i in recipe.inputs]
        count = frankenmerge.blocks(list(base))
        if recipe.selection == "frankenmerge":
            frankenmerge.check(recipe.genes.layers or (), count, len(inputs), whole=False)
        return {
            name: _rounded(origin, lambda o, n=name: pipeline_tensor(recipe, n, o, inputs))
            for name, origin in base.items()
        }

    def _merged(self, recipe: Merge) -> Weights:
        inputs = [self.weights(i) for i in recipe.inputs]
        base = self.weights(recipe.base) if recipe.base else None
        count = frankenmerge.blocks(list(inputs[0]))
        if recipe.method == "frankenmerge":
            choice = frankenmerge.Params(**recipe.params).layers
            frankenmerge.check(choice, count, len(inputs), whole=True)
        return {
            name: _rounded(origin, lambda o, n=name: _merge_tensor(recipe, n, o, inputs, count))
            for name, origin in (inputs[0] if base is None else base).items()
        }

    def _mutated(self, recipe: Mutate) -> Weights:
        base = self.weights(recipe.base)
        if recipe.pipeline is None:
            result, noises = self.weights(recipe.parent), ()
        else:
            result, noises = self._pipeline(recipe.pipeline), genome(recipe, self._known).noises
        if recipe.pipeline is None and recipe.noise is not None:
            noises = (recipe.noise,)
        for noise in noises:
            result = {
                name: _rounded(origin, lambda o, n=name, r=result, z=noise: noisy(z, n, o, r[n]))
                for name, origin in base.items()
            }
        return result


def _rounded(origin: torch.Tensor, compute: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """compute(origin in float32), rounded to origin's dtype; a tensor of integers is copied."""
    if not origin.is_floating_point():
        return origin.clone()
    return compute(origin.to(torch.float32)).to(origin.dtype)


def pipeline_tensor(
    recipe: Pipeline, name: str, origin: torch.Tensor, inputs: Sequence[Weights]
) -> torch.Tensor:
    """One tensor of a pipeline, float32 (SPEC §4). `origin` is the base's, in float32."""
    genes = recipe.genes
    layer = frankenmerge.block(name)
    chosen = genes.layers[layer] if genes.layers and layer is not None else 0
    if recipe.selection == "frankenmerge" and chosen:
        taken = inputs[chosen - 1][name].to(torch.float32) - origin
        return taken.mul_(genes.scale).add_(origin)
    deltas = [weights[name].to(torch.float32) - origin for weights in inputs]
    if recipe.interpolation == "linear":
        merged = linear.merge(deltas, genes.weights)
    else:
        merged = slerp.merge(deltas, genes.ts)
    if recipe.arithmetic == "dare":
        merged = dare.merge(merged, genes.drop, recipe.seed, name, 0)
    else:
        merged = ties.merge([merged, *deltas], genes.density)
    if recipe.selection == "dfs":
        merged = dfs.merge([merged, *deltas], genes.epsilon)
    return merged.mul_(genes.scale).add_(origin)


def _merge_tensor(
    recipe: Merge, name: str, origin: torch.Tensor, inputs: Sequence[Weights], blocks: int
) -> torch.Tensor:
    """One tensor of a single technique, float32. Without a base, weights stand for task vectors."""
    if recipe.method == "frankenmerge":
        choice = frankenmerge.Params(**recipe.params).layers
        return inputs[choice[frankenmerge.group(name, blocks)]][name].to(torch.float32)
    zero = origin if recipe.base else torch.zeros_like(origin)
    deltas = [weights[name].to(torch.float32) - zero for weights in inputs]
    return _technique(recipe, name, deltas).add_(zero)


def _technique(recipe: Merge, name: str, deltas: Sequence[torch.Tensor]) -> torch.Tensor:
    """The merged task vector of one tensor."""
    if recipe.method == "linear":
        return linear.merge(deltas, linear.Params(**recipe.params).weights)
    if recipe.method == "slerp":
        return slerp.merge(deltas, slerp.Params(**recipe.params).ts)
    if recipe.method == "task_arithmetic":
        return task_arithmetic.merge(deltas, task_arithmetic.Params(**recipe.params))
    if recipe.method == "ties":
        given = ties.Params(**recipe.params)
        return ties.merge(deltas, given.density, given.weights).mul_(given.scale)
    if recipe.method == "dare":
        drop = dare.Params(**recipe.params)
        sparse = [dare.merge(d, drop.drop, recipe.seed, name, i) for i, d in enumerate(deltas)]
        shares = linear.normalised(drop.weights, len(deltas))
        return linear.merge(sparse, shares).mul_(drop.scale)
    return dfs.merge(deltas, dfs.Params(**recipe.params).epsilon)


def noisy(noise: Noise, name: str, origin: torch.Tensor, parent: torch.Tensor) -> torch.Tensor:
    """The parent's tensor with noise on a share of its elements, float32.

    The touched elements are those whose lane is below the rate; the k-th of them takes the k-th
    Gaussian value of the tensor's own stream.
    """
    result = parent.to(torch.float32).clone()
    touched = randomness.lanes(result.numel(), noise.seed, name, "mask")
    places = torch.from_numpy((touched < round(noise.rate * randomness.LANES)).nonzero()[0])
    if not len(places):
        return result
    values = torch.from_numpy(randomness.gaussian(len(places), noise.seed, name, "noise"))
    if noise.relative_to == "absolute":
        values *= noise.sigma
    else:
        norm = square_norm(result - origin) ** 0.5
        values *= noise.sigma * norm / float(values.numpy() @ values.numpy()) ** 0.5
    flat = result.view(-1)
    flat[places] += values.to(torch.float32)
    return result


def not_finite(weights: Weights) -> str | None:
    """The first tensor that holds NaN or Inf, or None."""
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return name
    return None
