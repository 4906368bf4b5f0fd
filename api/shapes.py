"""Bodies of requests, and what answers look like: for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from worker.accounts import Role

Text = Annotated[str, Field(max_length=2000, pattern=r"^[^\x00]*$")]
Name = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]*$")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Reason(_Body):
    """Why; it is recorded."""

    reason: Text | None = Field(None, examples=["the GPU is needed"])


class Wanted(Reason):
    """A run to be started."""

    models: list[Name] = Field(
        max_length=64, examples=[["models/code", "models/math", "models/data"]]
    )
    base: Name | None = Field(None, examples=["models/base"])
    data: list[Name] = Field([], max_length=64, examples=[["models/items"]])
    #: Settings; see `GET /settings`.
    config: dict[str, Any] = Field({}, examples=[{"generations": 8, "strategy": "auto"}])
    priority: int = Field(0, ge=-1_000_000, le=1_000_000)
    labels: list[Annotated[str, Field(max_length=100)]] = Field([], max_length=32)
    quarantine: Literal["fail", "worst-fitness"] = "fail"


class Phase(Wanted):
    """The same, in the words of the source documents."""

    phase: Literal["evomerge"] = "evomerge"


class Priority(Reason):
    """A run's priority: of one user's, the highest go first."""

    priority: int = Field(ge=-1_000_000, le=1_000_000)


class Fork(Reason):
    """Where to branch, and what is changed."""

    at: int | None = Field(None, ge=1, description="After this event.", examples=[57])
    generation: int | None = Field(None, ge=0, description="When it is measured, not closed yet.")
    settings: dict[str, Any] = Field({}, examples=[{"generations": 20}])


class NewModel(_Body):
    """A model folder for the registry."""

    path: Name = Field(examples=["models/base"])
    name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    kind: Literal["base", "source", "specialist"] = "specialist"
    metrics: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = {}
    lineage: list[Name] = Field([], max_length=64)


class NewUser(_Body):
    """Somebody who may use the API."""

    name: str = Field(pattern=r"^[\w.@+-]{1,64}$", examples=["ada"])
    role: Role


class NewRole(_Body):
    """What a user may from now on."""

    role: Role


class NewToken(_Body):
    """What the token is for."""

    note: Annotated[str, Field(max_length=200)] = ""


class Problem(BaseModel):
    """Problem details (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str


class _Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


class Row(_Answer):
    """A run in a list."""

    run: str
    status: str
    owner: str
    priority: int
    labels: list[str]
    submitted_at: str
    updated_at: str
    parent: str | None
    generation: int | None
    champion: str | None
    score: float | None
    version: int
    device_seconds: float
    curve: list[float | None]


class Rows(_Answer):
    """A page of runs, the newest first."""

    runs: list[Row]
    total: int
    next: str | None


class Run(_Answer):
    """A run, now or as it was; docs/api.md has every field."""

    run: str
    status: str
    owner: str
    place: int
    places: int
    version: int
    head: str
    allowed: list[str]
    config: dict[str, Any]
    generations: list[dict[str, Any]]


class Event(_Answer):
    """An event as recorded."""

    place: int
    position: int
    run: str
    version: int
    type: str
    schema_: int = Field(alias="schema")
    actor: str
    recorded_at: str
    gist: str
    data: dict[str, Any]
    key: str
    hash: str


class Events(_Answer):
    """A stretch of a run's history."""

    events: list[Event]
    total: int
    next: int | None


class Population(_Answer):
    """Candidates of a generation, or of all."""

    generation: int | None
    generations: list[int]
    rows: list[dict[str, Any]]


class Candidate(_Answer):
    """A candidate: recipe, scores, parents, children."""

    recipe_id: str
    recipe: dict[str, Any]
    parents: list[str]
    children: list[str]
    evaluations: list[dict[str, Any]]


class Lineage(_Answer):
    """Nodes and edges."""

    candidate: str
    nodes: list[dict[str, Any]]
    edges: list[dict[str, str]]


class Layers(_Answer):
    """What a candidate is made of; `rows` only when `status` is ready."""

    status: Literal["ready", "working"]
    candidate: str


class Checked(_Answer):
    """What a check found."""

    ok: Literal[True]
    warnings: list[str]
    parameters: int
    items: dict[str, dict[str, int]]
    config: dict[str, Any]


class Made(_Answer):
    """A run that was recorded."""

    run: str


class Asked(_Answer):
    """What was asked of a run."""

    run: str
    before: str
    asked: str


class Export(_Answer):
    """How the writing of the champion's folder stands."""

    status: Literal["none", "running", "done", "failed"]
    folder: str | None
    error: str | None


class Model(_Answer):
    """A model of the registry."""

    id: str
    name: str
    kind: str
    digest: str
    bytes: int | None
    parameters: int
    metrics: dict[str, float]
    lineage: list[str]
    run: str | None
    path: str | None
    registered_at: str


class ModelList(_Answer):
    """Models, the newest first."""

    models: list[Model]
    total: int


class Me(_Answer):
    """Who asks."""

    name: str
    role: Role
    version: str
    roots: list[str]


class Users(_Answer):
    """Everybody who may use the API."""

    users: list[dict[str, Any]]


class IssuedToken(_Answer):
    """A token; it is shown this once."""

    id: str
    token: str
