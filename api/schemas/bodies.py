"""Schemas of request bodies, events and problem details (RFC 9457), for the OpenAPI document.

Texts in request bodies may not contain characters that control a terminal.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from agent_forge.api.schemas.candidates import Candidate, Layers, Lineage, Population
from agent_forge.api.schemas.listings import (
    IssuedToken,
    Kinds,
    ListedModel,
    MadeModel,
    Me,
    Model,
    ModelLineage,
    ModelList,
    ModelMeasurements,
    OwnedModel,
    Queue,
    Settings,
    UserRow,
    Users,
    Workers,
)
from agent_forge.api.schemas.runs import (
    Activity,
    Again,
    Answer,
    Checks,
    Json,
    Rows,
    Run,
    RunFacts,
    Status,
)
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.kinds.controls import CONTROLS
from agent_forge.runs.system import plain_text
from agent_forge.worker.commands.accounts import MOST_DAYS, NAME, Role


def plain(text: str) -> str:
    """Return the text as it is. Raises ValueError for characters that steer a terminal."""
    try:
        return plain_text.check(text, "the text")
    except ConfigError as error:
        raise ValueError(str(error)) from error


def named(text: str) -> str:
    """Return a new name as it is. Raises ValueError for characters that steer or do not show."""
    try:
        return plain_text.check_name(text, "the name")
    except ConfigError as error:
        raise ValueError(str(error)) from error


def one_line(text: object) -> object:
    """Return a text as one line, a blank for each line break or tab; anything else as it is."""
    return re.sub(r"[ \t]*(\r\n|[\r\n\t])[ \t]*", " ", text) if isinstance(text, str) else text


def plain_lines(text: str) -> str:
    """Return the text as it is. Raises ValueError for control characters but tabs and line breaks."""
    plain(re.sub(r"[\t\r\n]", " ", text))
    return text


def plain_values(setting: object, depth: int = 0) -> object:
    """Return settings as they are. Raises ValueError for control characters or too many levels."""
    if depth > MOST_DEPTH:
        raise ValueError(f"it is nested deeper than {MOST_DEPTH} levels")
    if isinstance(setting, str):
        plain(setting)
    elif isinstance(setting, dict):
        for key, value in setting.items():
            plain(key)
            plain_values(value, depth + 1)
    elif isinstance(setting, list):
        for value in setting:
            plain_values(value, depth + 1)
    return setting


#: Levels of nested settings.
MOST_DEPTH = 16

Plain = Annotated[str, AfterValidator(plain)]
Text = Annotated[Plain, BeforeValidator(one_line), Field(max_length=2000)]
Lines = Annotated[str, AfterValidator(plain_lines)]
Name = Annotated[Plain, Field(min_length=1, max_length=1000)]
#: A name that is given to something, not one that is looked up.
NewName = Annotated[str, AfterValidator(named)]
Label = Annotated[NewName, Field(max_length=100)]
Config = Annotated[dict[str, object], AfterValidator(plain_values)]


#: Metrics of a model.
MOST_METRICS = 64
#: Models of a run, of all roles together.
MOST_MODELS = 64
#: Names of the two spellings of models: places in a body are told without them.
SPELLINGS = ("list of models", "models by role")


def _few(models: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the models by role as they are. Raises ValueError if there are more than MOST_MODELS."""
    if sum(map(len, models.values())) > MOST_MODELS:
        raise ValueError(f"there are more than {MOST_MODELS} models")
    return models


Listed = Annotated[list[Name], Field(max_length=MOST_MODELS)]
ByRole = Annotated[dict[Label, list[Name]], Field(max_length=16), AfterValidator(_few)]
Models = Annotated[
    Annotated[Listed, Tag(SPELLINGS[0])] | Annotated[ByRole, Tag(SPELLINGS[1])],
    Discriminator(lambda body: SPELLINGS[isinstance(body, dict)]),
]

__all__ = [
    "Activity",
    "Again",
    "Asked",
    "Candidate",
    "Checked",
    "Checks",
    "CreatedModel",
    "Events",
    "Export",
    "Exporting",
    "Fork",
    "IssuedToken",
    "Kinds",
    "Layers",
    "Lineage",
    "ListedModel",
    "Made",
    "MadeModel",
    "Me",
    "Model",
    "ModelLineage",
    "ModelList",
    "ModelMeasurements",
    "Moments",
    "NewCheck",
    "NewModel",
    "NewRole",
    "NewToken",
    "NewUser",
    "OwnedModel",
    "Phase",
    "PhaseStatus",
    "Phases",
    "Population",
    "Priority",
    "Problem",
    "Queue",
    "Reason",
    "Rows",
    "Run",
    "RunFacts",
    "Settings",
    "StartedPhase",
    "UserRow",
    "Users",
    "Wanted",
    "Workers",
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Reason(_Body):
    """Reason of a command; it is recorded."""

    reason: Text | None = Field(
        None, description="Why; it is recorded.", examples=["the GPU is needed"]
    )


class Wanted(Reason):
    """A run to be started.

    A model is a folder below the server's roots, a Hub id, a run (RUN is its champion, RUN:CANDIDATE
    any candidate of it), or a registered model by id or name.
    """

    kind: Name = Field("evomerge", max_length=64, description="See `GET /kinds`.")
    name: NewName | None = Field(
        None, max_length=100, description="What to call the run.", examples=["first-try"]
    )
    models: Models = Field(
        [],
        description="The source models, or the one model, of kinds that take them; or models by role, "
        "for kinds that take further ones: see `GET /kinds`.",
        examples=[
            ["models/code", "models/math", "models/data"],
            {"model": ["models/base"], "students": ["models/small"]},
        ],
    )
    base: Name | None = Field(None, description="The base model.", examples=["models/base"])
    data: list[Name] = Field(
        [],
        max_length=64,
        description="Files or folders of data, PATH or DOMAIN=PATH.",
        examples=[["models/items"]],
    )
    config: Config = Field(
        {},
        description="Settings of the kind: see `GET /settings`. Others have their defaults.",
        examples=[{"generations": 8, "strategy": "auto"}],
    )
    file: Lines | None = Field(
        None,
        min_length=1,
        max_length=1 << 20,
        description="In place of `config`, for kinds that have a file of their own: its text, such as "
        "the TOML of a pipeline.",
        examples=['[[phase]]\nname = "specialists"\nkind = "cognate"\n'],
    )
    priority: int = Field(
        0, ge=-1_000_000, le=1_000_000, description="Of one user's runs, high ones go first."
    )
    labels: list[Label] = Field([], max_length=32, description="What a worker must offer.")
    quarantine: Literal["fail", "worst-fitness"] = Field(
        "fail", description="When a task has killed its process three times: fail, or go on without."
    )
    checked: bool = Field(
        True,
        description="False: record the run without reading its models and data. The worker checks them "
        "when it starts the run; what it refuses fails the run. A check reads them in any case.",
    )


#: What a run is submitted with beside its settings; the documents put it all into `config`.
_BESIDE = tuple(name for name in Wanted.model_fields if name != "config")


class Phase(Wanted):
    """A phase to start: `POST /runs`'s fields, or the source documents' `phase_name` and `config`.

    In the documents' form `config` holds models, base and data beside the settings.
    """

    phase: str = "evomerge"
    phase_name: str | None = Field(None, examples=["evomerge"])

    @model_validator(mode="before")
    @classmethod
    def _spelled(cls, given: object) -> object:
        """Read either spelling. Raises ValueError for a phase that cannot be started."""
        if not isinstance(given, dict):
            return given
        phase = given.get("phase_name") or given.get("phase") or given.get("kind") or "evomerge"
        if not isinstance(phase, str) or phase not in kinds.table():
            names = " or ".join(sorted(kinds.table()))
            raise ValueError(f"phase {str(phase)[:100]!r} cannot be started here: use {names}.")
        config = given.get("config")
        if not isinstance(config, dict):
            return {**given, "kind": phase}
        settings = {k: v for k, v in config.items() if k not in (*_BESIDE, "config")}
        nested = config.get("config")
        settings |= nested if isinstance(nested, dict) else {}
        beside = {k: config[k] for k in _BESIDE if k in config}
        return beside | {**given, "config": settings, "kind": phase}

    def plain(self) -> Wanted:
        """Return a Wanted, the body that `POST /runs` takes, without `phase` and `phase_name`."""
        return Wanted(**self.model_dump(exclude={"phase", "phase_name"}))


class Exporting(Reason):
    """Model of the run to export; by default the run's result with its report."""

    model: Name | None = Field(
        None, description="A fixed merge by its name, a role, an id.", examples=["mean"]
    )


class NewCheck(_Body):
    """Extent of a check: with `rebuild`, the result is made again from nothing and compared, too."""

    rebuild: bool = False


class Priority(Reason):
    """A run's priority: of one user's, the highest go first."""

    priority: int = Field(ge=-1_000_000, le=1_000_000, description="0 is the usual one.")


class NewRunName(_Body):
    """A run's new name; if it is empty, the kind and the day again."""

    name: NewName = Field(max_length=100, description="The new name.", examples=["first-try"])


class Override(Reason):
    """A gate that has stopped a pipeline: the phase that it belongs to."""

    phase: Text = Field(description="Name of the phase whose gate has stopped the run.")
    reason: Text = Field(min_length=1, description="Why; it is recorded.")


#: What may be asked of a run (`runs.kinds.controls`) → the body that asks it.
BODIES: dict[str, type[BaseModel]] = {
    **dict.fromkeys(CONTROLS, Reason),
    "priority": Priority,
    "rename": NewRunName,
    "override": Override,
}


class ModelWords(_Body):
    """A user's words about a model; those that are left out stay."""

    note: Text | None = Field(None, description="Empty: no note.")
    tags: list[NewName] | None = Field(None, max_length=20, description="All that it has then.")


class Words(ModelWords):
    """A user's words about a run; those that are left out stay."""

    name: NewName | None = Field(None, max_length=100, description="Empty: kind and day again.")


class Fork(Reason):
    """Fork: the place to branch at, and the changed settings."""

    at: int | None = Field(None, ge=1, description="After this event.", examples=[57])
    generation: int | None = Field(None, ge=0, description="When it is measured, not closed yet.")
    settings: Config = Field({}, examples=[{"generations": 20}])


class NewModel(_Body):
    """A model folder for the registry."""

    path: Name = Field(examples=["models/base"])
    name: Annotated[NewName, Field(min_length=1, max_length=200)] | None = None
    kind: Literal["base", "source", "specialist"] = "specialist"
    metrics: dict[
        Annotated[NewName, Field(min_length=1, max_length=100)],
        Annotated[float, Field(allow_inf_nan=False)],
    ] = Field({}, max_length=MOST_METRICS)
    lineage: list[Name] = Field([], max_length=64)


class CreatedModel(NewModel):
    """The same, or the source documents' `type` (the kind) and `params` (the rest)."""

    type: str | None = Field(None, examples=["specialist"])
    params: Json | None = Field(None, examples=[{"path": "models/base"}])

    @model_validator(mode="before")
    @classmethod
    def _spelled(cls, given: Any) -> object:
        """Read either spelling."""
        params = given.get("params") or {} if isinstance(given, dict) else None
        if not isinstance(params, dict):
            return given
        kind = {"kind": given["type"]} if given.get("type") is not None else {}
        return {**params, **kind, **given}


class NewUser(_Body):
    """New user of the API."""

    name: str = Field(pattern=f"^{NAME}$", examples=["ada"])
    role: Role


class NewRole(_Body):
    """New role of a user."""

    role: Role


class NewToken(_Body):
    """Purpose of a new token, and days until it expires; without days it never expires."""

    note: Annotated[Plain, Field(max_length=200)] = ""
    days: int | None = Field(None, ge=1, le=MOST_DAYS)


class Checked(Answer):
    """Result of a check."""

    ok: Literal[True]
    warnings: list[str]
    #: Of the models; null for a kind of run that takes none.
    parameters: int | None
    items: dict[str, dict[str, int]]
    config: Json


class Made(Answer):
    """A run that was recorded."""

    run: str


class Started(Made):
    """A run that was submitted, and the warnings of its check."""

    warnings: list[str]


class StartedPhase(Started):
    """The same, with the source documents' fields."""

    task_id: str
    phase: str
    status: str


class PhaseStatus(Answer):
    """Progress of a run: the source documents' fields, and further ones.

    Generations, fitness and diversity are those of merging runs; null for other kinds.
    """

    run: str
    phase: str
    task_id: str
    status: Status
    generation: int | None = None
    #: None: the run has a budget instead.
    generations: int | None = None
    total_generations: int | None = None
    progress: float
    percent: float
    best_fitness: float | None = None
    avg_fitness: float | None = None
    diversity: float | None = None
    message: str


class Phases(Answer):
    """Progress of the newest run of each phase; above `phases` that of the newest run of all.

    Before there is a run, `task_id` and `status` are null, and the fields with a default are missing.
    """

    phase: str
    task_id: str | None
    status: Status | None
    progress: float
    percent: float
    message: str
    phases: dict[str, PhaseStatus | None]
    run: str | None = None
    generation: int | None = None
    generations: int | None = None
    total_generations: int | None = None
    best_fitness: float | None = None
    avg_fitness: float | None = None
    diversity: float | None = None


class Asked(Answer):
    """Command that was recorded for a run."""

    run: str
    before: str
    asked: str


class Export(Answer):
    """State of the export of a run's result, or of another of its models."""

    status: Literal["none", "running", "done", "failed"]
    folder: str | None
    error: str | None
    #: Id of the model in the registry; null for a result of several models.
    model: str | None


class Event(Answer):
    """An event as recorded."""

    place: int
    position: int
    run: str
    version: int
    type: str
    #: It was appended together with the event before it: no place is between the two.
    inside: bool
    #: The unit of the run that it ends: a generation, a step.
    unit: int | None
    schema_: int = Field(alias="schema")
    actor: str
    recorded_at: str
    gist: str
    data: Json
    key: str
    hash: str


class Events(Answer):
    """A stretch of a run's history."""

    events: list[Event]
    total: int
    next: int | None


class Moment(Answer):
    """An event of a run or of a run that it delegates, without its data."""

    position: int
    #: The run whose event it is, and the event's place in that run's history.
    run: str
    place: int
    type: str
    #: It was appended together with the event before it of the same run.
    inside: bool
    actor: str
    recorded_at: str
    gist: str
    #: The unit of the asked run that it ends.
    unit: int | None


class Moments(Answer):
    """Events of a run and of the runs that it delegates, in the order of the log."""

    moments: list[Moment]
    total: int
    next: int | None


class WrongField(Answer):
    """A part of a body or query that is wrong, and why."""

    field: str
    message: str


class Problem(Answer):
    """Problem details (RFC 9457); `errors` only if parts of a body or query are wrong."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[WrongField] | None = None
