"""Schemas of the answers about candidates, lineage, layers and comparisons; see runs.py."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from api.schemas.runs import Answer, Components, Json, Status


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


class Side(Answer):
    """One of two runs that are compared."""

    run: str
    place: int
    status: Status
    generation: int | None


class ComparedGeneration(Answer):
    """A generation of both runs."""

    generation: int
    a: float | None
    b: float | None
    diversity_a: float | None
    diversity_b: float | None


class ComparedChampion(Answer):
    """The champion of one of two runs, with its score on the selection slice."""

    recipe_id: str
    score: float | None
    since: int
    what: str


class ComparedCandidates(Answer):
    """Ids of the models that one run has built and the other has not, and the number of the rest."""

    only_a: list[str]
    only_b: list[str]
    both: int


class ComparedEvaluations(Answer):
    """Numbers of evaluations of one run alone, and the evaluations with other outcomes."""

    only_a: int
    only_b: int
    different: list[str]


class Comparison(Answer):
    """Two runs side by side; `weights` has the ids of models whose weights differ."""

    a: Side
    b: Side
    settings: dict[str, tuple[Any, Any]]
    sources: list[list[str]]
    champion: list[ComparedChampion | None]
    candidates: ComparedCandidates
    weights: list[str]
    evaluations: ComparedEvaluations
    generations: list[ComparedGeneration]
    test: list[float | None]
    comparable: str | None
    same_lineage: bool
