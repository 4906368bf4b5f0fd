"""Builder of recipes' weights: their plans, the models that these read, and the execution.

Builder(known, stored).build(recipe)                  in memory
Builder(known, stored).build_many(recipes)            in memory, in one pass over shared sources
Builder(known, stored, scratch).write(recipe, folder) out of core, as safetensors
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agent_forge.evomerge.merging import dataflow
from agent_forge.evomerge.merging.execute import MemorySink, execute
from agent_forge.evomerge.merging.kernels.chunks import ChunkPool, finite
from agent_forge.evomerge.merging.plan import plan, reads
from agent_forge.evomerge.merging.safetensors_sink import SafetensorsSink, mapped
from agent_forge.evomerge.merging.tensor_ops import MergeInputs, Plan, Weights, specs
from agent_forge.evomerge.recipes.recipe import Recipe, Source, path
from agent_forge.weights.folders.checkpoint import SHARD_BYTES

__all__ = ["Builder", "Weights", "not_finite"]


class Builder:
    """Builder of recipes from their inputs.

    `known` holds every recipe by id. `stored` returns the weights of an id (always for sources), or
    None if they must be rebuilt. Rebuilt inputs are in memory or, with `scratch`, in files there.
    """

    def __init__(
        self,
        registry: Mapping[str, Recipe],
        stored: Callable[[str], Weights | None],
        scratch: Path | None = None,
    ) -> None:
        self._known = registry
        self._stored = stored
        self._scratch = scratch

    def weights(self, recipe_id: str) -> Weights:
        """Return a recipe's weights, {name: tensor}, stored or built; ancestors are built first.

        Raise KeyError if the recipe is a source without stored weights.
        """
        stored = self._stored(recipe_id)
        if stored is not None:
            return stored
        recipe = self._known.get(recipe_id)
        if recipe is None or isinstance(recipe, Source):
            raise KeyError(f"source {recipe_id} is not at hand")
        return self.build(recipe) if self._scratch is None else self._in_files(recipe)

    def build(self, recipe: Recipe) -> Weights:
        """Return a recipe's weights, {name: tensor}, computed; they may hold NaN or Inf: `not_finite`.

        Raise KeyError if the recipe is a source without stored weights.
        """
        if isinstance(recipe, Source):
            return self.weights(recipe.id)
        return self.build_many([recipe])[0]

    def build_many(self, recipes: Sequence[Recipe]) -> list[Weights]:
        """Return a list, each recipe's {name: tensor}; tensors that several recipes read are read once.

        All results are in memory at once, and so are all models that are read.
        """
        plans, models = self.planned(recipes)
        sinks = [MemorySink(ops) for ops in plans]
        with ChunkPool() as pool:
            execute(plans, models, sinks, pool)
        return [sink.weights for sink in sinks]

    def write(self, recipe: Recipe, folder: Path, shard_bytes: int = SHARD_BYTES) -> str:
        """Write the weights of a recipe into an existing folder; return their BLAKE3 digest.

        Memory is a few chunks for any size of the model, and one tensor if noise is added.
        Raise OSError if the disk is full.
        """
        (ops,), models = self.planned([recipe])
        with SafetensorsSink(folder, ops, shard_bytes) as sink, ChunkPool() as pool:
            execute([ops], models, [sink], pool)
            return sink.digest()

    def planned(self, recipes: Sequence[Recipe]) -> tuple[list[Plan], MergeInputs]:
        """Return (list of each recipe's plan, `MergeInputs`: the models that the plans read)."""
        read = dict.fromkeys(id_ for recipe in recipes for id_ in reads(recipe))
        weights = {id_: self.weights(id_) for id_ in read}
        source_specs = {id_: specs(model) for id_, model in weights.items()}
        return [plan(recipe, self._known, source_specs) for recipe in recipes], MergeInputs(weights)

    def origin(self, recipe: Recipe, base: Weights) -> Weights:
        """Return the zero of a model's task vector: the base, along the model's path if any."""
        taken = path(recipe, self._known)
        return base if taken is None else dataflow.origin(taken, base)

    def _in_files(self, recipe: Recipe) -> Weights:
        """Return the weights of a recipe from files in `scratch`, which are made if missing."""
        assert self._scratch is not None
        folder = self._scratch / recipe.id
        if not folder.exists():
            folder.mkdir()
            self.write(recipe, folder)
        return mapped(folder)


def not_finite(weights: Weights) -> str | None:
    """Return the name of the first tensor that holds NaN or Inf; None if all are finite."""
    return next((name for name, tensor in weights.items() if not finite(tensor)), None)
