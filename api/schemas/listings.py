"""Schemas of the answers about models, users, the queue, workers, settings and pipelines."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agent_forge.api.schemas.runs import Answer, Row, Status
from agent_forge.runs.event_types import Figure
from agent_forge.runs.lists.model_registry import Listed
from agent_forge.runs.panels.panels import Graph
from agent_forge.runs.panels.stages import Standing
from agent_forge.worker.commands.accounts import Role


class Model(Answer):
    """A model of the registry."""

    id: str
    name: str
    kind: Listed
    digest: str
    bytes: int | None
    parameters: int
    metrics: dict[str, float]
    lineage: list[str]
    #: Of a GGUF file: `file`, `type` that it rounds most weights to, `digest` of its bytes; or empty.
    origin: dict[str, str]
    run: str | None
    #: What the run is called.
    run_name: str | None
    path: str | None
    registered_at: str
    note: str
    tags: list[str]


class OwnedModel(Model):
    """A model with its owner: of the run that it came with, or the user who registered it."""

    owner: str


class ListedModel(Model):
    """A model with the source documents' `size`: its bytes, 0 if they are not known."""

    size: int


class MadeModel(Model):
    """A registered model with the source documents' fields."""

    model_id: str
    metadata: Model


class Measured(Answer):
    """A figure of a model; interval and number of items are null if the log has no items of it."""

    name: str
    domain: str
    slice: str
    figure: Figure


class MeasuredInRun(Answer):
    """Measurements of a model in one run, which made the model or was given it.

    Without those that a run before has measured with equal results: `again` counts these.
    """

    run: str
    run_name: str
    kind: str
    made: bool
    measurements: list[Measured]
    again: int


class ModelMeasurements(Answer):
    """Measurements of a model, the run that made it first; of `total` runs the newest are read."""

    runs: list[MeasuredInRun]
    total: int


class ModelFile(Answer):
    """A file of a model's folder."""

    name: str
    bytes: int


class Writing(Answer):
    """State of the process that writes a model's files."""

    status: Literal["none", "running", "done", "failed"]
    error: str | None


class GgufFile(Answer):
    """The model as a GGUF file of a type, such as Q8_0."""

    type: str
    bytes: int


class GgufFiles(Writing):
    """The GGUF files of the model that are written, and the process that writes another."""

    files: list[GgufFile]


class GgufTypes(Answer):
    """Types of GGUF file that a model can be written as."""

    types: list[str]


class ModelFiles(Answer):
    """Files of a model's folder; `folder` is null if this server reads none."""

    folder: str | None
    files: list[ModelFile]
    #: Of the files that hold weights; null without any.
    bytes: int | None
    #: Lines of Python that load the model from the unpacked zip.
    load: list[str]
    writing: Writing
    gguf: GgufFiles


class Ticket(Answer):
    """A ticket for one download below a path, within a minute."""

    ticket: str
    path: str


class Ancestor(Answer):
    """A recipe that a model was made from, in words; `given`: the digest of a model that was given."""

    recipe_id: str
    place: str
    words: str
    given: str | None


class OneRun(Answer):
    """Ancestors of a model within one run, the model first."""

    run: str
    run_name: str
    ancestors: list[Ancestor]


class ModelLineage(Answer):
    """Ancestors of a model, its own run first, then the runs that made what that one was given."""

    runs: list[OneRun]
    #: The models as a graph with a lane for each run; null if no run of this log made the model.
    tree: Graph | None


class ModelList(Answer):
    """Models, the newest first."""

    models: list[Model]
    total: int


class Me(Answer):
    """The user who asks, and what the server lets the user read."""

    name: str
    role: Role
    version: str
    roots: list[str]


class Token(Answer):
    """A token of a user, without its secret; it expires at a time in seconds since 1970, or never."""

    id: str
    note: str
    issued_at: str
    expires: float | None


class UserRow(Answer):
    """A user."""

    name: str
    role: Role
    tokens: list[Token]


class Users(Answer):
    """The users of the API."""

    users: list[UserRow]


class QueueRow(Row):
    """A run that has not ended, and what it waits for."""

    waits_for: str
    #: The command that ends the wait; empty if none does.
    helps: str


class Queue(Answer):
    """The runs that have not ended, in their order."""

    runs: list[QueueRow]


class Worker(Answer):
    """A device, and what it works on; `doing` is its task in words."""

    name: str
    device: str
    status: str
    run: str | None
    run_name: str | None
    task: str | None
    doing: str | None
    done: int
    seconds: float
    living: bool
    labels: list[str]
    memory: int
    profile: str | None


class Workers(Answer):
    """Every device."""

    workers: list[Worker]


class Settings(Answer):
    """Settings that a run can be submitted with."""

    schema_: dict[str, object] = Field(alias="schema")
    defaults: dict[str, object]
    strategies: list[str] = []


class KindRow(Answer):
    """A kind of run: its name, a line about it, the unit of its progress, and what it takes."""

    name: str
    line: str
    unit: str
    #: Beside settings, of: sources, base, data.
    takes: list[str]
    #: It has a file of its own, whose text may take the place of settings.
    file: bool


class Kinds(Answer):
    """The kinds of run that the server knows."""

    kinds: list[KindRow]


class IssuedToken(Answer):
    """A token; it is shown this once."""

    id: str
    token: str


class PipelineStage(Answer):
    """A phase of a pipeline in the list."""

    #: From 1.
    number: int
    name: str
    #: A kind of run.
    what: str
    state: Standing
    #: The figure of the gate that has stopped it; empty if none has.
    gate: str
    run: str | None


class PipelineRow(Answer):
    """A pipeline in the list."""

    run: str
    name: str
    kind: str
    status: Status
    owner: str
    priority: int
    labels: list[str]
    #: It was imported only as the past of a fork, and waits.
    past: bool
    submitted_at: str
    updated_at: str
    #: Phases that have ended, of all.
    done: int
    of: int
    stages: list[PipelineStage]
    #: A gate has stopped it: a user decides how it goes on.
    undecided: bool
    #: Bits per byte, and bytes of the file, of the newest measured model that goes on.
    quality: float | None
    bytes: int | None
    #: Device seconds of the pipeline's runs.
    spent: float


class Pipelines(Answer):
    """A page of pipelines, the newest first."""

    pipelines: list[PipelineRow]
    total: int
    next: str | None


class StoppedGate(Answer):
    """A gate that has stopped a pipeline: the phase, the figure, and why in a sentence."""

    name: str
    gate: str
    says: str


class NeedingRun(Answer):
    """A run that has failed. `stopped` is the gate that has stopped it; `version` counts its events."""

    run: str
    name: str
    kind: str
    owner: str
    version: int
    updated_at: str
    stopped: StoppedGate | None
    reason: str


class GoneWorker(Answer):
    """A device whose worker no longer answers, and the run that it worked on."""

    name: str
    device: str
    run: str | None
    run_name: str | None
    seconds: float
    #: When its last status began, seconds since 1970.
    since: float


class Needs(Answer):
    """Facts that wait for the user; `total` counts failed runs."""

    runs: list[NeedingRun]
    total: int
    workers: list[GoneWorker]
