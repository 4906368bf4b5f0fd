"""Schemas of the answers about candidates, lineage and layers; see runs.py."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agent_forge.api.schemas.runs import Answer, Components, Json


class PopulationRow(Answer):
    """A candidate in a population; `parts` has the genes by part that `genes` of a run are about."""

    generation: int
    slot: int
    recipe_id: str
    kind: str
    pipeline: str | None
    rank: int | None
    search: float | None
    selection: float | None
    perplexity: float | None
    accuracy: float | None
    parents: list[str]
    genes: dict[str, float]
    parts: dict[str, float] | None
    digest: str | None


class Population(Answer):
    """Candidates of a generation, or of all."""

    generation: int | None
    generations: list[int]
    rows: list[PopulationRow]


class Evaluation(Answer):
    """A candidate's scores on one draw."""

    slice: str
    generation: int | None
    fitness: float | None
    quality: float | None
    components: Components | None
    stopped: str | None


class Candidate(Answer):
    """A candidate: recipe, scores, parents, children.

    Candidates that were merged have `document`, and `yaml`, null if no config can express the recipe.
    """

    recipe_id: str
    kind: str
    name: str
    what: str
    where: str
    digest: str | None
    recipe: Json
    genes: dict[str, float]
    parents: list[str]
    children: list[str]
    evaluations: list[Evaluation]
    yaml: str | None = None
    document: Json | None = None


class LineageNode(Answer):
    """A recipe of a lineage."""

    id: str
    kind: str
    name: str
    what: str
    generation: int | None
    slot: int | None
    score: float | None
    parents: list[str]
    ancestor: bool
    champion: bool


class LineageEdge(Answer):
    """Parent and child."""

    from_: str = Field(alias="from")
    to: str


class Lineage(Answer):
    """Nodes and edges."""

    candidate: str
    nodes: list[LineageNode]
    edges: list[LineageEdge]


class LayerRow(Answer):
    """A layer: each source's share of the task vector, and how much of it the sum explains."""

    layer: str
    coefficients: list[float]
    explained: float | None
    moved: float | None


class Layers(Answer):
    """Share of each source in a candidate's layers; `sources` and `rows` only if `status` is ready."""

    status: Literal["ready", "working"]
    candidate: str
    sources: list[str] | None = None
    rows: list[LayerRow] | None = None
