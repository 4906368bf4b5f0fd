"""Recipes: immutable, content-addressed descriptions of how weights come from sources.

A recipe names its inputs by id, so recipes form a Merkle graph: an id stands for the whole history
of a candidate. Nothing in a recipe depends on the place of files or on the machine that builds it.

    Source    a model given to the run, by the digest of its weights (`weights.recipes`)
    Merge     one technique over inputs
    Pipeline  three fused stages and a scale (SPEC §4)
    Grouped   one technique, its parameters by group of tensors
    Flow      a path through the layers of a grouped merge and of its inputs
    Mutate    a parent with some genes changed and some noise added
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from agent_forge.weights.recipes import Frozen, RecipeNode, Source

Interpolation = Literal["linear", "slerp"]
Arithmetic = Literal["dare", "ties"]
Selection = Literal["frankenmerge", "dfs"]
Method = Literal[
    "linear", "slerp", "task_arithmetic", "ties", "dare", "frankenmerge", "dfs", "tsv_m", "iso_c"
]
GroupedMethod = Literal["slerp", "task_arithmetic", "ties", "dare", "stages", "tsv_m", "iso_c"]

#: Pipelines 0–7: the index is the three choices read as a binary number, first stage first.
PIPELINES: tuple[tuple[Interpolation, Arithmetic, Selection], ...] = tuple(
    (i, a, s) for i in ("linear", "slerp") for a in ("dare", "ties") for s in ("frankenmerge", "dfs")
)
#: Species of the continuous genome (`evomerge.search.genes.genome`) → technique, and the parameters
#: that are the same in all its recipes.
TECHNIQUES: dict[str, tuple[GroupedMethod, dict[str, object]]] = {
    "task_arithmetic": ("task_arithmetic", {}),
    "ties": ("ties", {"normalise": False}),
    "dare_linear": ("dare", {"normalise": False}),
    "dare_ties": ("dare", {"normalise": False, "vote": True}),
    "slerp": ("slerp", {}),
}
TECHNIQUES |= {"-".join(names): ("stages", {}) for names in PIPELINES if names[2] == "dfs"}
TECHNIQUES |= {"tsv_m": ("tsv_m", {}), "iso_c": ("iso_c", {})}
SPECIES = tuple(TECHNIQUES)


class Merge(RecipeNode):
    """One technique over `inputs`, on task vectors where `base` is given and the method uses one."""

    kind: Literal["merge"] = "merge"
    method: Method
    inputs: tuple[str, ...]
    base: str | None
    #: The parameters of `evomerge.merging.methods.<method>.Params`.
    params: dict[str, Any] = {}
    seed: int = 0

    def inputs_used(self) -> tuple[str, ...]:
        """Return the ids of the recipes whose weights are read."""
        return self.inputs if self.base is None else (*self.inputs, self.base)


class Genes(Frozen):
    """The numbers of a pipeline that evolution may turn. Only those of its stages are read."""

    #: linear: weights of the inputs; None is 1/n each.
    weights: tuple[float, ...] | None = None
    #: slerp: interpolation factor t of each further input; None is 1/2, 1/3, …
    ts: tuple[float, ...] | None = None
    #: dare: share of elements dropped.
    drop: float = Field(default=0.5, ge=0, lt=1)
    #: ties: share of elements kept by TRIM.
    density: float = Field(default=0.2, ge=0, le=1)
    #: dfs: the guard in importance = 1 / (d² + ε mean d²).
    epsilon: float = Field(default=0.1, gt=0)
    #: λ on the task vector that leaves the last stage.
    scale: float = 1.0
    #: frankenmerge: per block 0 = the earlier stages' result, k = input k. None: not chosen yet.
    layers: tuple[int, ...] | None = None


class Pipeline(RecipeNode):
    """Interpolation → task arithmetic → selection, fused in float32 (SPEC §4)."""

    kind: Literal["pipeline"] = "pipeline"
    inputs: tuple[str, ...]
    base: str
    interpolation: Interpolation
    arithmetic: Arithmetic
    selection: Selection
    genes: Genes = Genes()
    seed: int

    @property
    def name(self) -> str:
        """The names of its stages, such as "slerp-ties-dfs"."""
        return f"{self.interpolation}-{self.arithmetic}-{self.selection}"

    @property
    def number(self) -> int:
        """The pipeline's index in PIPELINES, 0 to 7."""
        return PIPELINES.index((self.interpolation, self.arithmetic, self.selection))

    @property
    def needs_layers(self) -> bool:
        """True if layers must be chosen by measuring before the pipeline can be built."""
        return self.selection == "frankenmerge" and self.genes.layers is None

    def inputs_used(self) -> tuple[str, ...]:
        """Return the ids of the recipes whose weights are read."""
        return (*self.inputs, self.base)


class Grouped(RecipeNode):
    """One technique over `inputs`, with parameters of their own for each group of tensors."""

    kind: Literal["grouped"] = "grouped"
    method: GroupedMethod
    inputs: tuple[str, ...]
    base: str
    #: Layer groups; see `evomerge.recipes.tensor_groups`.
    depths: int = Field(ge=1)
    #: Group → the parameters of `evomerge.merging.methods.<method>.Params`.
    params: tuple[dict[str, Any], ...]
    seed: int = 0

    @property
    def name(self) -> str:
        """The name of its technique, such as "ties", "dare_ties" or "linear-ties-dfs"."""
        first = self.params[0]
        if self.method == "stages":
            return str(first["name"])
        return (
            f"dare_{'ties' if first.get('vote') else 'linear'}"
            if self.method == "dare"
            else self.method
        )

    @property
    def needs_layers(self) -> bool:
        """Always False: the parameters already hold the chosen layers."""
        return False

    def inputs_used(self) -> tuple[str, ...]:
        """Return the ids of the recipes whose weights are read."""
        return (*self.inputs, self.base)


class Step(Frozen):
    """One block of a path: whose it is, which, and what goes into it is multiplied by `scale`."""

    #: Whose block it is: 0 the merge's, k the k-th input's.
    model: int = Field(ge=0)
    block: int = Field(ge=0)
    scale: float = Field(default=1.0, gt=0)


class Flow(RecipeNode):
    """Data flow space over parameter space: a path through the blocks of a merge and of its inputs.

    Blocks may come several times, in any order, or not at all; what stands outside of blocks is the
    merge's. See `evomerge.merging.dataflow`.
    """

    kind: Literal["flow"] = "flow"
    merged: Grouped
    steps: tuple[Step, ...] = Field(min_length=1)

    @property
    def name(self) -> str:
        """The name of the merge with "+path", such as "ties+path"."""
        return f"{self.merged.name}+path"

    @property
    def needs_layers(self) -> bool:
        """Always False: a path has no open layers."""
        return False

    @property
    def base(self) -> str:
        """The id of the merge's base."""
        return self.merged.base

    @property
    def inputs(self) -> tuple[str, ...]:
        """The ids of the merge's inputs."""
        return self.merged.inputs

    def inputs_used(self) -> tuple[str, ...]:
        """Return the ids of the recipes whose weights are read."""
        return self.merged.inputs_used()


class Noise(Frozen):
    """Gaussian noise on a share of the elements of every tensor."""

    #: Share of elements touched.
    rate: float = Field(gt=0, le=1)
    #: Norm of a tensor's noise, relative to its task vector ("task_vector"), or the standard
    #: deviation of each touched element ("absolute", the source documents' form).
    sigma: float = Field(gt=0)
    relative_to: Literal["task_vector", "absolute"]
    seed: int


class Mutate(RecipeNode):
    """The parent with another `pipeline` in place of its own, and with `noise` on top.

    With `pipeline`, that pipeline is built and the parent's own noises are added again in their
    order. Without it, the noise goes onto the parent's weights.
    """

    kind: Literal["mutate"] = "mutate"
    parent: str
    base: str
    pipeline: Pipeline | Grouped | Flow | None = None
    noise: Noise | None = None

    def inputs_used(self) -> tuple[str, ...]:
        """Return the ids of the recipes whose weights are read: the parent and the base.

        `genome` resolves the parent to the merge that is really computed.
        """
        return (self.parent, self.base)


Recipe = Annotated[Source | Merge | Pipeline | Grouped | Flow | Mutate, Field(discriminator="kind")]
RECIPE: TypeAdapter[Source | Merge | Pipeline | Grouped | Flow | Mutate] = TypeAdapter(Recipe)


@dataclass(frozen=True)
class Genome:
    """A candidate resolved to what is really computed: one merge, and the noises on it."""

    pipeline: Pipeline | Grouped | Flow
    noises: tuple[Noise, ...]


def genome(recipe: Recipe, recipes: Mapping[str, Recipe]) -> Genome:
    """Return the `Genome` of a candidate: its recipe resolved to one merge and the noises on it.

    Raises TypeError for a Source or Merge, which have no genome.
    """
    if isinstance(recipe, Pipeline | Grouped | Flow):
        return Genome(recipe, ())
    if not isinstance(recipe, Mutate):
        raise TypeError(f"a {recipe.kind} recipe has no genome")
    parent = genome(recipes[recipe.parent], recipes)
    noises = parent.noises if recipe.noise is None else (*parent.noises, recipe.noise)
    return Genome(recipe.pipeline or parent.pipeline, noises)


def path(recipe: Recipe, recipes: Mapping[str, Recipe]) -> Flow | None:
    """Return the path (`Flow`) of a model; None if its blocks are in the usual order."""
    while isinstance(recipe, Mutate):
        recipe = recipe.pipeline or recipes[recipe.parent]
    return recipe if isinstance(recipe, Flow) else None


def blocks(recipe: Recipe, recipes: Mapping[str, Recipe], usual: int) -> int:
    """Return the number of blocks of a model; `usual` is that of a model without a path."""
    taken = path(recipe, recipes)
    return usual if taken is None else len(taken.steps)


def label(recipe: Recipe, recipes: Mapping[str, Recipe]) -> str:
    """Return a recipe's name for display: "linear-ties-dfs", "task_arithmetic", "source"."""
    if isinstance(recipe, Merge):
        return recipe.method
    if isinstance(recipe, Source):
        return "source"
    return genome(recipe, recipes).pipeline.name


def parents(recipe: Recipe) -> tuple[str, ...]:
    """Return the ids of all recipes that a recipe names; an id may occur twice."""
    below = recipe.inputs_used()
    if isinstance(recipe, Mutate) and recipe.pipeline is not None:
        below = (*below, *recipe.pipeline.inputs_used())
    return below


def closure(recipe_id: str, recipes: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """Return {id: recipe} of the recipe and all that it is made from, parents before children."""
    family: dict[str, Recipe] = {}

    def visit(id_: str) -> None:
        if id_ in family:
            return
        recipe = recipes[id_]
        for input_ in parents(recipe):
            visit(input_)
        family[id_] = recipe

    visit(recipe_id)
    return family
