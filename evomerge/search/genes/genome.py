"""The continuous genome: points in [0, 1]ⁿ and the grouped recipes that they stand for.

The mapping is pure and goes both ways. A species is a merge technique with numeric parameters. Its
genes are, for every cell of tensors: a weight on each source's task vector (or slerp's t for each
source after the first), and the share that the technique keeps or drops.

A cell holds groups of `evomerge.recipes.tensor_groups`: all groups ("whole"), those of a layer
group ("layers"; the embedding goes with the first, the head with the last), those of a part
("parts"), or a single group ("full"). An affine map takes genes from [0, 1] to their bounds, cell
by cell. Parameters are rounded to six decimals, so that a strategy is told what was built.

    species            genes of a cell
    task_arithmetic    a weight per source
    tsv_m, iso_c       a weight per source
    ties               a weight per source, density
    dare_linear        a weight per source, drop
    dare_ties          a weight per source, drop
    slerp              t per further source
    linear-…-dfs       a weight per source, drop or density, scale
    slerp-…-dfs        t per further source, drop or density, scale

If a species' weights are on task vectors, their sum is not normalised: the weights alone decide how
far a merge goes. `point` is exact for recipes of the same species whose cells hold one value each;
a cell with several values takes their mean. For other recipes `point` is the nearest point that the
species can express: the overall weights of `consensus` times λ, and defaults for parameters that
the recipe lacks.

With `paths`, the genes of a path through the merge and the sources follow
(`evomerge.search.genes.path_genes`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from agent_forge.evomerge.config import EvoMergeConfig
from agent_forge.evomerge.recipes import tensor_groups
from agent_forge.evomerge.recipes.recipe import (
    TECHNIQUES,
    Flow,
    Genes,
    Grouped,
    Merge,
    Mutate,
    Pipeline,
    Recipe,
    Source,
    path,
)
from agent_forge.evomerge.search.genes.path_genes import Paths
from agent_forge.evomerge.search.strategy import SourceFamily
from agent_forge.evomerge.search_settings import GenomeSettings
from agent_forge.search.gene import Gene

Detail = Literal["whole", "layers", "parts", "full"]
DETAILS: tuple[Detail, ...] = ("whole", "layers", "parts", "full")
#: Cells → the finer cells to try if these give too few genes.
FINER: dict[Detail, Detail] = {"whole": "parts", "layers": "full", "parts": "full"}

WEIGHT = (-0.5, 1.5)
T = (0.0, 1.0)
DENSITY = (0.02, 1.0)
DROP = (0.0, 0.95)
SCALE = (0.0, 2.0)
#: Bounds of a source's weight if the species normalises its weights.
SHARE = (0.02, 1.0)


@dataclass(frozen=True)
class Space:
    """The points of one species over the family's sources."""

    family: SourceFamily
    species: str
    detail: Detail
    depths: int
    #: Genes of a path, after those of the merge that it goes through.
    paths: Paths | None = None

    @cached_property
    def genes(self) -> tuple[Gene, ...]:
        """The genes of one cell."""
        count, usual = len(self.family.sources), 1 / len(self.family.sources)
        if self.species.startswith("slerp"):
            cell_genes = [Gene("ts", k, *T, 1 / (k + 1)) for k in range(1, count)]
        else:
            bounds = SHARE if self.species.endswith("dfs") else WEIGHT
            cell_genes = [Gene("weights", k, *bounds, usual) for k in range(count)]
        if "ties" in self.species and self.species != "dare_ties":
            cell_genes.append(Gene("density", None, *DENSITY, 0.5))
        elif "dare" in self.species:
            cell_genes.append(Gene("drop", None, *DROP, 0.5))
        if self.species.endswith("dfs"):
            cell_genes.append(Gene("scale", None, *SCALE, 1.0))
        return tuple(cell_genes)

    @cached_property
    def cells(self) -> tuple[int, ...]:
        """The number of the cell of each group of tensors."""
        count = tensor_groups.count(self.depths)
        if self.detail == "whole":
            return (0,) * count
        if self.detail == "layers":
            depths = [d for d in range(self.depths) for _ in tensor_groups.PARTS]
            return (*depths, 0, self.depths - 1)
        if self.detail == "parts":
            return tuple(tensor_groups.part(g, self.depths) for g in range(count))
        return tuple(range(count))

    @property
    def dimension(self) -> int:
        """The number of genes of a point."""
        return self.merging + (self.paths.dimension if self.paths else 0)

    @property
    def merging(self) -> int:
        """The number of a point's genes that describe the merge; the rest describe a path."""
        return (max(self.cells) + 1) * len(self.genes)

    @property
    def sizes(self) -> list[int]:
        """The numbers of genes that belong together: of each cell, then of each place of a path."""
        cells = [len(self.genes)] * (max(self.cells) + 1)
        return cells + ([2] * (self.paths.dimension // 2) if self.paths else [])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of a point's genes, in order, for example "embedding weights 2"."""
        full, parts = tensor_groups.names(self.depths), (*tensor_groups.PARTS, "embedding", "head")
        layers = [f"layers {d + 1}/{self.depths}" for d in range(self.depths)]
        named = {"whole": ["all"], "layers": layers, "parts": parts, "full": full}
        cells = named[self.detail]
        labels = [g.key + ("" if g.source is None else f" {g.source + 1}") for g in self.genes]
        merging_names = tuple(f"{cell} {gene}" for cell in cells for gene in labels)
        return merging_names + (self.paths.names if self.paths else ())

    # ---- point → recipe -------------------------------------------------------------------

    def recipe(self, x: Sequence[float], seed: int = 0) -> Grouped | Flow:
        """Return the recipe of a point, `Grouped` or with paths `Flow`; genes are clipped to [0, 1]."""
        merged = self.merge(x, seed)
        if self.paths is None:
            return merged
        return Flow(merged=merged, steps=self.paths.steps(x[self.merging :]))

    def merge(self, x: Sequence[float], seed: int = 0) -> Grouped:
        """Return the merge (`Grouped`) of a point, without its path."""
        size = len(self.genes)
        values = [
            [gene.value(float(x[cell * size + i])) for i, gene in enumerate(self.genes)]
            for cell in range(max(self.cells) + 1)
        ]
        params = tuple(self._params(values[cell]) for cell in self.cells)
        technique = TECHNIQUES[self.species][0]
        drawn = "dare" in self.species
        return Grouped(
            method=technique,
            inputs=self.family.sources,
            base=self.family.base,
            depths=self.depths,
            params=params,
            seed=seed if drawn else 0,
        )

    def _params(self, values: Sequence[float]) -> dict[str, object]:
        params: dict[str, Any] = dict(TECHNIQUES[self.species][1])
        for gene, value in zip(self.genes, values, strict=True):
            if gene.source is None:
                params[gene.key] = value
            else:
                params.setdefault(gene.key, []).append(value)
        if not self.species.endswith("dfs"):
            return params
        genes = Genes.model_validate(params).model_dump(mode="json")
        return {"name": self.species, "genes": genes}

    def uniform(self, weights: Sequence[float]) -> list[float]:
        """Return the point with these task-vector weights in every cell and usual other genes."""
        values = _from_weights(self.genes, weights)
        cells = range(max(self.cells) + 1)
        point = [g.place(values[i]) for _ in cells for i, g in enumerate(self.genes)]
        return point + (self.paths.straight if self.paths else [])

    # ---- recipe → point -------------------------------------------------------------------

    def point(self, recipe: Recipe, recipes: Mapping[str, Recipe]) -> list[float]:
        """Return the point of a recipe, or the nearest point that the species can express."""
        rows = self._rows(recipe, recipes)
        return self._merging_point(rows) + self._path_point(recipe, recipes)

    def _path_point(self, recipe: Recipe, recipes: Mapping[str, Recipe]) -> list[float]:
        if self.paths is None:
            return []
        taken = path(recipe, recipes)
        return self.paths.straight if taken is None else self.paths.point(taken.steps)

    def _merging_point(self, rows: list[list[float]]) -> list[float]:
        size = len(self.genes)
        sums = [[0.0] * size for _ in range(max(self.cells) + 1)]
        for cell, row in zip(self.cells, rows, strict=True):
            sums[cell] = [a + b for a, b in zip(sums[cell], row, strict=True)]
        counts = [self.cells.count(cell) for cell in range(len(sums))]
        return [
            gene.place(total / count)
            for row, count in zip(sums, counts, strict=True)
            for gene, total in zip(self.genes, row, strict=True)
        ]

    def _rows(self, recipe: Recipe, recipes: Mapping[str, Recipe]) -> list[list[float]]:
        """Return the genes' values for each group of tensors, [groups][genes]."""
        count = tensor_groups.count(self.depths)
        if isinstance(recipe, Mutate):
            return self._rows(recipe.pipeline or recipes[recipe.parent], recipes)
        if isinstance(recipe, Flow):
            return self._rows(recipe.merged, recipes)
        if isinstance(recipe, Grouped) and recipe.inputs == self.family.sources:
            own_genes = [self._of_params(recipe, params) for params in recipe.params]
            if recipe.depths == self.depths:
                return own_genes
            return [
                own_genes[tensor_groups.nearest(g, self.depths, recipe.depths)] for g in range(count)
            ]
        weights = consensus(recipe, recipes, self.family.sources)
        own_genes = _own(recipe)
        if not isinstance(recipe, Source) and recipe.inputs != self.family.sources:
            own_genes.pop("ts", None)  # these t are between other models
        return [_from_weights(self.genes, weights, own_genes)] * count

    def _of_params(self, recipe: Grouped, params: Mapping[str, Any]) -> list[float]:
        own_params = dict(params["genes"]) if recipe.method == "stages" else dict(params)
        if recipe.name == self.species:
            first = {"weights": 0, "ts": 1}
            return [
                float(
                    own_params[g.key]
                    if g.source is None
                    else own_params[g.key][g.source - first[g.key]]
                )
                for g in self.genes
            ]
        return _from_weights(self.genes, _group(recipe, params), own_params)


def space_of(
    config: EvoMergeConfig, family: SourceFamily, species: str, detail: Detail | None = None
) -> Space:
    """Return the space of a species with these settings."""
    paths, blocks = None, family.blocks
    search = config.search_as(GenomeSettings)
    if search.repeats:
        count = len(family.sources)
        paths = Paths(blocks, count, search.repeats, search.longest_path(blocks))
    return Space(family, species, detail or search.genome_detail, search.depths(blocks), paths)


def roomy(space: Space) -> Space:
    """Return the space, or the first finer space with two genes: one gene has no covariance.

    If no finer space has two genes, return the space as it is.
    """
    fine_space = space
    while fine_space.dimension < 2 and fine_space.detail in FINER:
        fine_space = replace(fine_space, detail=FINER[fine_space.detail])
    return fine_space if fine_space.dimension > 1 else space


def _own(recipe: Recipe) -> dict[str, object]:
    """Return {parameter: value} of the technique's parameters that the recipe itself states."""
    if isinstance(recipe, Pipeline):
        return recipe.genes.model_dump(mode="json")
    return dict(recipe.params) if isinstance(recipe, Merge) else {}


def _from_weights(
    genes: Sequence[Gene], weights: Sequence[float], own_params: Mapping[str, Any] | None = None
) -> list[float]:
    """Return a cell's gene values for these weights on task vectors.

    `own_params` holds parameters that the recipe states; its ts, density and drop take precedence.
    """
    params = own_params or {}
    ts = params.get("ts") or _as_ts(weights)
    total = math.fsum(weights)
    scaled = any(gene.key == "scale" for gene in genes)
    values = []
    for gene in genes:
        if gene.key == "weights":
            assert gene.source is not None
            values.append(
                weights[gene.source] / total if scaled and total > 0 else weights[gene.source]
            )
        elif gene.key == "ts":
            assert gene.source is not None
            values.append(ts[gene.source - 1])
        elif gene.key == "scale":
            values.append(total if total > 0 else 1.0)
        else:
            value = params.get(gene.key)
            values.append(gene.usual if not isinstance(value, int | float) else float(value))
    return values


def _as_ts(weights: Sequence[float]) -> list[float]:
    """Return the t of successive linear interpolations that give the shares of these weights.

    Negative weights count as 0.
    """
    shares = [max(0.0, w) for w in weights]
    ts, sofar = [], shares[0]
    for k, share in enumerate(shares[1:], start=1):
        sofar += share
        ts.append(share / sofar if sofar > 0 else 1 / (k + 1))
    return ts


def _group(recipe: Grouped, params: Mapping[str, Any]) -> list[float]:
    """Return the inputs' weights in one group; a pipeline's linear stage normalises them."""
    if recipe.method != "stages":
        return _consensus(params, len(recipe.inputs))
    own_params = dict(params["genes"])
    if recipe.name.startswith("linear") and own_params.get("weights"):
        total = math.fsum(own_params["weights"]) or 1.0
        own_params["weights"] = [w / total for w in own_params["weights"]]
    return _consensus(own_params, len(recipe.inputs))


def _consensus(own_params: Mapping[str, Any], count: int) -> list[float]:
    """Return the overall weight of each input under a set of parameters."""
    scale = float(own_params.get("scale", 1.0))
    if ts := own_params.get("ts"):
        weights = [1.0]
        for t in ts:
            weights = [w * (1 - t) for w in weights] + [float(t)]
        return [scale * w for w in weights]
    given_weights = own_params.get("weights")
    if given_weights is None:
        return [scale / count] * count
    return [scale * float(w) for w in given_weights]


def consensus(
    recipe: Recipe,
    recipes: Mapping[str, Recipe],
    sources: Sequence[str],
    done: dict[str, list[float]] | None = None,
) -> list[float]:
    """Return, for each source, the approximate weight of its task vector in a recipe.

    The weights are exact for sources, and for methods that add task vectors. For methods that vote,
    drop, select or interpolate on an arc, they are the weights that go in. Layers that are taken
    whole are ignored. `done` caches input id → weights.
    """
    done = {} if done is None else done
    if isinstance(recipe, Source):
        return [1.0 if recipe.id == s else 0.0 for s in sources]
    if isinstance(recipe, Mutate):
        return consensus(recipe.pipeline or recipes[recipe.parent], recipes, sources, done)
    if isinstance(recipe, Flow):
        return consensus(recipe.merged, recipes, sources, done)
    count = len(recipe.inputs)
    if isinstance(recipe, Grouped):
        rows = [_group(recipe, p) for p in recipe.params]
        shares = [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)]
    elif isinstance(recipe, Pipeline):
        shares = _consensus(recipe.genes.model_dump(), count)
        if recipe.interpolation == "linear" and recipe.genes.weights is not None:
            total = math.fsum(recipe.genes.weights) or 1.0
            shares = [w / total for w in shares]
    else:
        shares = _of_merge(recipe)
    for i in recipe.inputs:
        if i not in done:
            done[i] = consensus(recipes[i], recipes, sources, done)
    below = [done[i] for i in recipe.inputs]
    return [
        math.fsum(share * row[k] for share, row in zip(shares, below, strict=True))
        for k in range(len(sources))
    ]


def _of_merge(recipe: Merge) -> list[float]:
    params, count = recipe.params, len(recipe.inputs)
    weights = [float(w) for w in params.get("weights") or [1.0] * count]
    scale = float(params.get("scale", 1.0))
    if recipe.method == "task_arithmetic" and not params.get("normalise", False):
        return [scale * w for w in weights]
    total = math.fsum(weights) or 1.0
    return [scale * w / total for w in weights]
