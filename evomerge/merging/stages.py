"""Pipelines as techniques of their own: "linear-ties-dfs" and its seven siblings (SPEC §4)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from agent_forge.evomerge.merging import pipelines
from agent_forge.evomerge.merging.kernels.chunks import Merge, Stretches
from agent_forge.evomerge.recipes.recipe import PIPELINES, Genes

#: Name → (interpolation, arithmetic, selection).
NAMES = {"-".join(stages): stages for stages in PIPELINES}


class Params(BaseModel):
    """A pipeline's name, as "slerp-dare-dfs", and its genes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    genes: Genes = Genes()


def prepare(work: Stretches, params: Params, seed: int) -> Merge:
    """Return the `Merge` of one tensor by the three stages."""
    return pipelines.prepare(work, NAMES[params.name], params.genes, seed)
