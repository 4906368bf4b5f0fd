"""A pipeline of a run as a technique of its own: "linear-ties-dfs" and its seven siblings (SPEC §4)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from evomerge.merging import pipelines
from evomerge.merging.kernels.chunks import Merge, Stretches
from evomerge.recipes.recipe import PIPELINES, Genes, Pipeline

#: Name → (interpolation, arithmetic, selection).
NAMES = {"-".join(stages): stages for stages in PIPELINES}


class Params(BaseModel):
    """A pipeline's name, as "slerp-dare-dfs", and its genes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    genes: Genes = Genes()


def recipe(name: str, genes: Genes, count: int, seed: int) -> Pipeline:
    """The pipeline over `count` inputs that have no ids."""
    interpolation, arithmetic, selection = NAMES[name]
    return Pipeline(
        inputs=tuple(map(str, range(count))), base="", seed=seed, genes=genes,
        interpolation=interpolation, arithmetic=arithmetic, selection=selection,
    )  # fmt: skip


def prepare(work: Stretches, params: Params, seed: int) -> Merge:
    """The three stages of one tensor."""
    return pipelines.prepare(work, recipe(params.name, params.genes, work.count, seed))
