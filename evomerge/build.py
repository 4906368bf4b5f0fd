"""Recipe → weights, fused in float32, tensor by tensor.

All mathematics is on task vectors θ − θ₀ in float32; the result is rounded once, to the output
dtype (the base's). Nothing depends on the number of threads: elementwise operations do not, and
reductions are in `methods.reduce`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from evomerge import randomness
from evomerge.methods import dare, dfs, frankenmerge, linear, slerp, task_arithmetic, ties
from evomerge.methods.reduce import gram, square_norm
from evomerge.recipe import Merge, Mutate, Noise, Pipeline, Recipe, Source, genome

Weights = Mapping[str, torch.Tensor]

#: Elements worked on at a time: few enough for the cache, many enough for Python.
CHUNK = 1 << 18


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
        return _each(base, lambda name: pipeline_tensor(recipe, name, base[name], inputs))

    def _merged(self, recipe: Merge) -> Weights:
        inputs = [self.weights(i) for i in recipe.inputs]
        base = self.weights(recipe.base) if recipe.base else None
        count = frankenmerge.blocks(list(inputs[0]))
        if recipe.method == "frankenmerge":
            choice = frankenmerge.Params(**recipe.params).layers
            frankenmerge.check(choice, count, len(inputs), whole=True)
        origin = inputs[0] if base is None else base

        def one(name: str) -> torch.Tensor:
            return _rounded(origin[name], lambda o: _merge_tensor(recipe, name, o, inputs, count))

        return _each(origin, one)

    def _mutated(self, recipe: Mutate) -> Weights:
        base = self.weights(recipe.base)
        if recipe.pipeline is None:
            result, noises = self.weights(recipe.parent), ()
        else:
            result, noises = self._pipeline(recipe.pipeline), genome(recipe, self._known).noises
        if recipe.pipeline is None and recipe.noise is not None:
            noises = (recipe.noise,)
        for noise in noises:
            result = _add_noise(noise, base, result)
        return result


def _each(base: Weights, build: Callable[[str], torch.Tensor]) -> Weights:
    """Every tensor by name, built side by side, the largest first.

    Threads change nothing but time: a tensor is the work of one of them, which does not let torch
    split it further.
    """
    order = sorted(base, key=lambda name: (-base[name].numel(), name))
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=lambda: torch.set_num_threads(1)) as pool:
            built = dict(zip(order, pool.map(build, order), strict=True))
    finally:
        torch.set_num_threads(threads)  # MKL's number is one for all threads
    return {name: built[name] for name in base}


def _add_noise(noise: Noise, base: Weights, parent: Weights) -> Weights:
    def one(name: str) -> torch.Tensor:
        return _rounded(base[name], lambda origin: noisy(noise, name, origin, parent[name]))

    return _each(base, one)


def _rounded(origin: torch.Tensor, compute: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """compute(origin in float32), rounded to origin's dtype; a tensor of integers is copied."""
    if not origin.is_floating_point():
        return origin.clone()
    return compute(origin.to(torch.float32)).to(origin.dtype)


class _Scratch(threading.local):
    """A thread's reused float32 memory: fresh pages cost more than the arithmetic on them."""

    def __init__(self) -> None:
        self._buffers: dict[int, torch.Tensor] = {}

    def take(self, place: int, shape: torch.Size) -> torch.Tensor:
        """The buffer of a place, in this shape, whatever is in it."""
        count = shape.numel()
        if place not in self._buffers or self._buffers[place].numel() < count:
            self._buffers[place] = torch.empty(count, dtype=torch.float32)
        return self._buffers[place][:count].view(shape)


_scratch = _Scratch()


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """[rows, columns] view: an output feature a row; a vector is a column."""
    return tensor.reshape(tensor.shape[0], -1) if tensor.dim() > 1 else tensor.reshape(-1, 1)


def _cuts(rows: int, columns: int) -> list[slice]:
    """Stretches of whole rows of about CHUNK elements."""
    step = max(1, CHUNK // max(1, columns))
    return [slice(start, start + step) for start in range(0, rows, step)]


def pipeline_tensor(
    recipe: Pipeline, name: str, origin: torch.Tensor, inputs: Sequence[Weights]
) -> torch.Tensor:
    """One tensor of a pipeline (SPEC §4), in `origin`'s dtype. `origin` is the base's tensor.

    What needs the whole tensor (dot products, thresholds) comes first; the rest goes stretch by
    stretch through the processor's cache.
    """
    if not origin.is_floating_point():
        return origin.clone()
    genes, layer = recipe.genes, frankenmerge.block(name)
    base = _rows(origin)
    cuts = _cuts(*base.shape)
    result = torch.empty_like(base)
    chosen = genes.layers[layer] if genes.layers and layer is not None else 0
    if recipe.selection == "frankenmerge" and chosen:
        taken = _deltas(base, [_rows(inputs[chosen - 1][name])], cuts)[0]
        for cut in cuts:
            result[cut] = taken[cut].mul_(genes.scale).add_(base[cut])
        return result.view(origin.shape)
    deltas = _deltas(base, [_rows(weights[name]) for weights in inputs], cuts)
    arithmetic = _arithmetic(recipe, name, deltas, cuts)
    for cut in cuts:
        merged = arithmetic(cut)
        if recipe.selection == "dfs":
            merged = dfs.merge([merged, *(d[cut] for d in deltas)], genes.epsilon)
        result[cut] = merged.mul_(genes.scale).add_(base[cut])
    return result.view(origin.shape)


def _deltas(
    base: torch.Tensor, inputs: Sequence[torch.Tensor], cuts: Sequence[slice]
) -> list[torch.Tensor]:
    """Task vectors in float32, in the thread's scratch: good until it builds another tensor."""
    deltas = [_scratch.take(place, base.shape) for place in range(len(inputs))]
    for cut in cuts:
        origin = base[cut].to(torch.float32)
        for tensor, delta in zip(inputs, deltas, strict=True):
            torch.sub(tensor[cut].to(torch.float32), origin, out=delta[cut])
    return deltas


def _arithmetic(
    recipe: Pipeline, name: str, deltas: list[torch.Tensor], cuts: Sequence[slice]
) -> Callable[[slice], torch.Tensor]:
    """Stages 1 and 2 of one tensor, as a function of the stretch."""
    genes = recipe.genes
    if recipe.interpolation == "linear":
        factors = linear.normalised(genes.weights, len(deltas))
    else:
        factors = slerp.fold(gram(deltas), genes.ts)
    if recipe.arithmetic == "dare":
        kept, factor = dare.mask(deltas[0].numel(), genes.drop, recipe.seed, name, 0)
        shaped = None if kept is None else kept.view(deltas[0].shape)

        def sparse(cut: slice) -> torch.Tensor:
            consensus = linear.combine([d[cut] for d in deltas], factors)
            return consensus if shaped is None else consensus.mul_(shaped[cut]).mul_(factor)

        return sparse
    consensus = _scratch.take(len(deltas), deltas[0].shape)
    for cut in cuts:
        consensus[cut] = linear.combine([d[cut] for d in deltas], factors)
    voters = [consensus, *deltas]
    smallest = [ties.threshold(voter, genes.density) for voter in voters]
    ones = [1.0] * len(voters)

    def voted(cut: slice) -> torch.Tensor:
        trimmed = [ties.cut(v[cut], s) for v, s in zip(voters, smallest, strict=True)]
        return ties.elect(trimmed, ones)

    return voted


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
        values *= noise.sigma * norm / square_norm(values) ** 0.5
    flat = result.view(-1)
    flat[places] += values.to(torch.float32)
    return result


def not_finite(weights: Weights) -> str | None:
    """The first tensor that holds NaN or Inf, or None."""
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return name
    return None
