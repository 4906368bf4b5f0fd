"""The continuous genome: a point in [0, 1]ⁿ ↔ a grouped recipe. Pure.

A species is a merge technique with parameters that can be turned. Its genes are, for every cell of
tensors: a weight on each source's task vector (or slerp's t for each source after the first), and what
the technique keeps or drops. Cells are all groups of `evomerge.recipes.tensor_groups` together
("whole"), by layer group ("layers"; the embedding with the first, the head with the last), by part
("parts"), or each by itself ("full"). Genes lie in [0, 1] by an affine map onto their bounds, cell by
cell, and parameters are rounded to six decimals, so that what a strategy is told is what was built.

    species            genes of a cell
    task_arithmetic    a weight per source
    ties               a weight per source, density
    dare_linear        a weight per source, drop
    dare_ties          a weight per source, drop
    slerp              t per further source
    linear-…-dfs       a weight per source, drop or density, scale
    slerp-…-dfs        t per further source, drop or density, scale

Sums are not normalised where a species' weights are on task vectors: the weights alone say how far a
merge goes. `point` is exact for recipes of the same species whose cells hold one value each; a cell
with several takes their mean. Of other recipes it is the nearest thing that the species can say: a
consensus' weights times λ, defaults for what the recipe does not have.

With `paths`, genes of a path through the merge and the sources follow (`evomerge.search.path_genes`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from evomerge.config import EvoMergeConfig
from evomerge.recipes import tensor_groups
from evomerge.recipes.recipe import (
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
from evomerge.search.path_genes import Paths
from evomerge.search.proposals import Family

Detail = Literal["whole", "layers", "parts", "full"]
DETAILS: tuple[Detail, ...] = ("whole", "layers", "parts", "full")
#: Where one cell has too few genes, what is tried next.
FINER: dict[Detail, Detail] = {"whole": "parts", "layers": "full", "parts": "full"}

WEIGHT = (-0.5, 1.5)
T = (0.0, 1.0)
DENSITY = (0.02, 1.0)
DROP = (0.0, 0.95)
SCALE = (0.0, 2.0)
#: A source's share of a consensus that is normalised.
SHARE = (0.02, 1.0)


@dataclass(frozen=True)
class Gene:
    """One number of a cell: the parameter, the source that it is for, its bounds, its usual value."""

    key: str
    source: int | None
    low: float
    high: float
    usual: float

    def value(self, x: float) -> float:
        """What x in [0, 1] means."""
        x = min(1.0, max(0.0, x))
        return round(self.low + x * (self.high - self.low), 6)

    def place(self, value: float) -> float:
        """Where in [0, 1] a value lies; outside of the bounds at their end."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


@dataclass(frozen=True)
class Space:
    """The points of one species over the family's sources."""

    family: Family
    species: str
    detail: Detail
    depths: int
    #: Genes of a path, after those of the merge that it goes through.
    paths: Paths | None = None

    @cached_property
    def genes(self) -> tuple[Gene, ...]:
        """Those of one cell."""
        count, usual = len(self.family.sources), 1 / len(self.family.sources)
        if self.species.startswith("slerp"):
            found = [Gene("ts", k, *T, 1 / (k + 1)) for k in range(1, count)]
        else:
            bounds = SHARE if self.species.endswith("dfs") else WEIGHT
            found = [Gene("weights", k, *bounds, usual) for k in range(count)]
        if "ties" in self.species and self.species != "dare_ties":
            found.append(Gene("density", None, *DENSITY, 0.5))
        elif "dare" in self.species:
            found.append(Gene("drop", None, *DROP, 0.5))
        if self.species.endswith("dfs"):
            found.append(Gene("scale", None, *SCALE, 1.0))
        return tuple(found)

    @cached_property
    def cells(self) -> tuple[int, ...]:
        """The cell of each group of tensors."""
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
        """How many genes a point has."""
        return self.merging + (self.paths.dimension if self.paths else 0)

    @property
    def merging(self) -> int:
        """How many of them say how to merge; the rest are a path's."""
        return (max(self.cells) + 1) * len(self.genes)

    @property
    def sizes(self) -> list[int]:
        """How many genes belong together: those of a cell, or of a place of a path."""
        cells = [len(self.genes)] * (max(self.cells) + 1)
        return cells + ([2] * (self.paths.dimension // 2) if self.paths else [])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of the genes of a point, in order: "embedding weights 2"."""
        full, parts = tensor_groups.names(self.depths), (*tensor_groups.PARTS, "embedding", "head")
        layers = [f"layers {d + 1}/{self.depths}" for d in range(self.depths)]
        named = {"whole": ["all"], "layers": layers, "parts": parts, "full": full}
        cells = named[self.detail]
        said = [g.key + ("" if g.source is None else f" {g.source + 1}") for g in self.genes]
        own = tuple(f"{cell} {gene}" for cell in cells for gene in said)
        return own + (self.paths.names if self.paths else ())

    # ---- point → recipe -------------------------------------------------------------------

    def recipe(self, x: Sequence[float], seed: int = 0) -> Grouped | Flow:
        """The recipe of a point. What lies outside of [0, 1] counts as its end."""
        merged = self.merge(x, seed)
        if self.paths is None:
            return merged
        return Flow(merged=merged, steps=self.paths.steps(x[self.merging :]))

    def merge(self, x: Sequence[float], seed: int = 0) -> Grouped:
        """The merge that a point says, without its path."""
        size = len(self.genes)
        values = [
            [gene.value(float(x[cell * size + i])) for i, gene in enumerate(self.genes)]
            for cell in range(max(self.cells) + 1)
        ]
        params = tuple(self._params(values[cell]) for cell in self.cells)
        technique = TECHNIQUES[self.species][0]
        drawn = "dare" in self.species
        return Grouped(
            method=technique, inputs=self.family.sources, base=self.family.base,
            depths=self.depths, params=params, seed=seed if drawn else 0,
        )  # fmt: skip

    def _params(self, values: Sequence[float]) -> dict[str, Any]:
        found: dict[str, Any] = dict(TECHNIQUES[self.species][1])
        for gene, value in zip(self.genes, values, strict=True):
            if gene.source is None:
                found[gene.key] = value
            else:
                found.setdefault(gene.key, []).append(value)
        if not self.species.endswith("dfs"):
            return found
        genes = Genes.model_validate(found).model_dump(mode="json")
        return {"name": self.species, "genes": genes}

    def uniform(self, weights: Sequence[float]) -> list[float]:
        """The point with these weights on task vectors everywhere, the rest as usual."""
        values = _from_weights(self.genes, weights)
        cells = range(max(self.cells) + 1)
        own = [g.place(values[i]) for _ in cells for i, g in enumerate(self.genes)]
        return own + (self.paths.straight if self.paths else [])

    # ---- recipe → point -------------------------------------------------------------------

    def point(self, recipe: Recipe, known: Mapping[str, Recipe]) -> list[float]:
        """The point of a recipe, or the one nearest to what it says."""
        rows = self._rows(recipe, known)
        return self._merging_point(rows) + self._path_point(recipe, known)

    def _path_point(self, recipe: Recipe, known: Mapping[str, Recipe]) -> list[float]:
        if self.paths is None:
            return []
        taken = path(recipe, known)
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

    def _rows(self, recipe: Recipe, known: Mapping[str, Recipe]) -> list[list[float]]:
        """The values of each group's genes."""
        count = tensor_groups.count(self.depths)
        if isinstance(recipe, Mutate):
            return self._rows(recipe.pipeline or known[recipe.parent], known)
        if isinstance(recipe, Flow):
            return self._rows(recipe.merged, known)
        if isinstance(recipe, Grouped) and recipe.inputs == self.family.sources:
            own = [self._of_params(recipe, params) for params in recipe.params]
            if recipe.depths == self.depths:
                return own
            return [own[tensor_groups.nearest(g, self.depths, recipe.depths)] for g in range(count)]
        weights = consensus(recipe, known, self.family.sources)
        own = _own(recipe)
        if not isinstance(recipe, Source) and recipe.inputs != self.family.sources:
            own.pop("ts", None)  # they are between other models
        return [_from_weights(self.genes, weights, own)] * count

    def _of_params(self, recipe: Grouped, params: Mapping[str, Any]) -> list[float]:
        own = dict(params["genes"]) if recipe.method == "stages" else dict(params)
        if recipe.name == self.species:
            first = {"weights": 0, "ts": 1}
            return [
                float(own[g.key] if g.source is None else own[g.key][g.source - first[g.key]])
                for g in self.genes
            ]
        return _from_weights(self.genes, _group(recipe, params), own)


def space_of(
    config: EvoMergeConfig, family: Family, species: str, detail: Detail | None = None
) -> Space:
    """The space of a species with these settings."""
    paths, blocks = None, family.blocks
    if config.path_repeats:
        count = len(family.sources)
        paths = Paths(blocks, count, config.path_repeats, config.longest_path(blocks))
    return Space(family, species, detail or config.genome_detail, config.depths(blocks), paths)


def roomy(space: Space) -> Space:
    """The space, or the coarsest finer one that has two genes: fewer have no covariance."""
    found = space
    while found.dimension < 2 and found.detail in FINER:
        found = replace(found, detail=FINER[found.detail])
    return found if found.dimension > 1 else space


def _own(recipe: Recipe) -> dict[str, Any]:
    """What a recipe itself says of the parameters of a technique."""
    if isinstance(recipe, Pipeline):
        return recipe.genes.model_dump(mode="json")
    return dict(recipe.params) if isinstance(recipe, Merge) else {}


def _from_weights(
    genes: Sequence[Gene], weights: Sequence[float], own: Mapping[str, Any] | None = None
) -> list[float]:
    """Values of a cell's genes for these weights on task vectors; `own` parameters go before."""
    given = own or {}
    ts = given.get("ts") or _as_ts(weights)
    total = math.fsum(weights)
    scaled = any(gene.key == "scale" for gene in genes)
    found = []
    for gene in genes:
        if gene.key == "weights":
            assert gene.source is not None
            found.append(
                weights[gene.source] / total if scaled and total > 0 else weights[gene.source]
            )
        elif gene.key == "ts":
            assert gene.source is not None
            found.append(ts[gene.source - 1])
        elif gene.key == "scale":
            found.append(total if total > 0 else 1.0)
        else:
            value = given.get(gene.key)
            found.append(gene.usual if not isinstance(value, int | float) else float(value))
    return found


def _as_ts(weights: Sequence[float]) -> list[float]:
    """The fold of straight lines that gives these weights' shares; negative ones count as none."""
    shares = [max(0.0, w) for w in weights]
    found, sofar = [], shares[0]
    for k, share in enumerate(shares[1:], start=1):
        sofar += share
        found.append(share / sofar if sofar > 0 else 1 / (k + 1))
    return found


def _group(recipe: Grouped, params: Mapping[str, Any]) -> list[float]:
    """The weights of one group; a pipeline's linear stage takes shares."""
    if recipe.method != "stages":
        return _consensus(params, len(recipe.inputs))
    own = dict(params["genes"])
    if recipe.name.startswith("linear") and own.get("weights"):
        total = math.fsum(own["weights"]) or 1.0
        own["weights"] = [w / total for w in own["weights"]]
    return _consensus(own, len(recipe.inputs))


def _consensus(own: Mapping[str, Any], count: int) -> list[float]:
    """The weight of each input on the whole that a set of parameters comes down to."""
    scale = float(own.get("scale", 1.0))
    if ts := own.get("ts"):
        weights = [1.0]
        for t in ts:
            weights = [w * (1 - t) for w in weights] + [float(t)]
        return [scale * w for w in weights]
    given = own.get("weights")
    if given is None:
        return [scale / count] * count
    return [scale * float(w) for w in given]


def consensus(
    recipe: Recipe,
    known: Mapping[str, Recipe],
    sources: Sequence[str],
    done: dict[str, list[float]] | None = None,
) -> list[float]:
    """The weight of each source's task vector that a recipe comes down to, by and large.

    Exact for sources, and for what adds up task vectors; of what votes, drops, selects or bends, it is
    what goes in. Layers that are taken whole are not looked at. `done` is what is known already.
    """
    done = {} if done is None else done
    if isinstance(recipe, Source):
        return [1.0 if recipe.id == s else 0.0 for s in sources]
    if isinstance(recipe, Mutate):
        return consensus(recipe.pipeline or known[recipe.parent], known, sources, done)
    if isinstance(recipe, Flow):
        return consensus(recipe.merged, known, sources, done)
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
            done[i] = consensus(known[i], known, sources, done)
    below = [done[i] for i in recipe.inputs]
    return [
        math.fsum(share * row[k] for share, row in zip(shares, below, strict=True))
        for k in range(len(sources))
    ]


def _of_merge(recipe: Merge) -> list[float]:
    given, count = recipe.params, len(recipe.inputs)
    weights = [float(w) for w in given.get("weights") or [1.0] * count]
    scale = float(given.get("scale", 1.0))
    if recipe.method == "task_arithmetic" and not given.get("normalise", False):
        return [scale * w for w in weights]
    total = math.fsum(weights) or 1.0
    return [scale * w / total for w in weights]
