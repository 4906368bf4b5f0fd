"""Inputs of the tools. Clients get them as JSON Schema; every field says what it means."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agent_forge.api.schemas import bodies as schemas
from agent_forge.api.schemas.runs import Status
from agent_forge.runs.lists.model_registry import Listed

#: The longest that one call of `follow_run` waits, seconds.
LONGEST = 60.0

RunName = Annotated[
    schemas.Plain, Field(min_length=1, max_length=200, description="Name of a run, or its beginning.")
]
Key = Annotated[
    schemas.Plain,
    Field(min_length=1, max_length=200, description="What has one key is carried out once."),
]
Filter = Annotated[schemas.Plain, Field(max_length=200)]
At = Annotated[int, Field(ge=1, lt=1 << 62)]


class Input(BaseModel):
    """Input of a tool; a field that does not exist is refused."""

    model_config = ConfigDict(extra="forbid")


class Nothing(Input):
    """No input."""


class KindInput(Input):
    """A kind of run."""

    kind: schemas.Name = Field(max_length=64, description="A kind of run: see `list_kinds`.")


class Runs(Input):
    """Filters of the list of runs, and a page of it."""

    status: Status | None = Field(None, description="Only in this state.")
    kind: Filter | None = Field(None, description="Only runs of this kind: see `list_kinds`.")
    owner: Filter | None = Field(None, description="Only of this user.")
    label: Filter | None = Field(None, description="Only with this label.")
    text: Filter = Field("", description="Part of a name, an owner or a label.")
    limit: int = Field(20, ge=1, le=100, description="Runs on a page.")
    before: int | None = Field(None, ge=0, lt=1 << 62, description="`next` of the page before.")


class Run(Input):
    """A run, now or as it was."""

    run: RunName
    at: At | None = Field(None, description="As it was after this event of its history.")


class PanelInput(Run):
    """A panel of a run."""

    panel: schemas.Name = Field(max_length=64, description="Name of a panel: see `show_run`.")


class FollowInput(Input):
    """A run to follow, and how long to wait for news of it."""

    run: RunName
    place: int | None = Field(
        None,
        ge=0,
        lt=1 << 62,
        description="Wait until the run has more events than these: `place` of the last answer. "
        "Default: all of now.",
    )
    wait_seconds: float = Field(
        0.0, ge=0, le=LONGEST, description="Seconds to wait at most; 0 answers at once."
    )


class History(Input):
    """A part of a run's history."""

    run: RunName
    after: int = Field(0, ge=0, lt=1 << 62, description="Events after this place.")
    before: At | None = Field(None, description="Backwards, from the event before this place.")
    limit: int = Field(50, ge=1, le=200, description="Events on a page.")
    data: bool = Field(False, description="With the events' data; it may be large.")


class Pair(Input):
    """Two runs."""

    run: RunName
    other: RunName


class Models(Input):
    """Filters of the list of models."""

    kind: Listed | None = Field(None, description="Only models of this kind.")
    text: Filter = Field("", description="Part of a name or an id.")
    limit: int = Field(20, ge=1, le=100, description="Models at most, the newest first.")


class Model(Input):
    """A model of the log."""

    model: schemas.Name = Field(
        description="RUN or RUN/champion (its result), RUN:CANDIDATE or RUN:ROLE, or a registered "
        "model by id or name."
    )


class NewRun(schemas.Wanted):
    """A run as `POST /runs` takes it.

    A model is a folder, a Hub id, a run (RUN or RUN/champion is its result, RUN:CANDIDATE or RUN:ROLE
    another model of it), or a registered model by id or name.
    """

    kind: schemas.Name = Field(max_length=64, description="A kind of run: see `list_kinds`.")
    config: schemas.Config = Field(
        {}, description="Settings of the kind: see `show_settings`. Others have their defaults."
    )


class Started(NewRun):
    """A run to start, and a key."""

    key: Key | None = None
