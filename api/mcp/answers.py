"""Answers of the tools, as structured content. Those that a route gives too are in `api.schemas`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from api.schemas.listings import OneRun
from api.schemas.runs import Answer, Status
from runs.panels.head import Head
from runs.panels.side_by_side import Judgement, SettingBeside


class RunRow(Answer):
    """A run of a list; `value` is that of its result, or of the best so far, in `metric`."""

    run: str
    name: str
    kind: str
    status: Status
    owner: str
    priority: int
    labels: list[str]
    submitted_at: str
    updated_at: str
    parent: str | None
    value: float | None
    metric: str
    unit: str
    better: Literal["up", "down"] | None
    measured_on: str


class Runs(Answer):
    """A page of runs, the newest first; `next` is `before` of the page after, or null."""

    runs: list[RunRow]
    total: int
    next: int | None


class PanelLine(Answer):
    """A panel without its data: what it shows, in one sentence."""

    name: str
    kind: str
    title: str
    says: str


class Shown(Answer):
    """Head of a run, and the panels that `show_panel` gives the data of."""

    name: str = Field(description="What the run is called.")
    head: Head
    panels: list[PanelLine]


class Panel(Answer):
    """One panel; docs/api.md has the eleven kinds. `total` counts its data if some is left out."""

    panel: dict[str, Any]


class Event(Answer):
    """An event of a run."""

    place: int
    type: str
    actor: str
    recorded_at: str
    gist: str = Field(description="The event in a few words.")
    data: dict[str, Any] | None = Field(description="Null if not asked for, or too large.")
    characters: int = Field(description="Length of the data as JSON.")


class Events(Answer):
    """A part of a run's history; `next` is `after` (or `before`) of the next part, or null."""

    events: list[Event]
    total: int
    next: int | None


class Compared(Answer):
    """Two runs side by side: their heads as `show_run` has them."""

    names: dict[str, str] = Field(description="Run → what it is called.")
    heads: tuple[dict[str, Any], ...]
    judgements: tuple[Judgement, ...]
    settings: tuple[SettingBeside, ...]


class Explained(Answer):
    """Ancestors of a model, its own run first, then the runs that made what that one was given."""

    runs: list[OneRun]
    ancestors: int
    left_out: int = Field(description="Ancestors left out: the farthest.")


class Started(Answer):
    """A run that was recorded; `fresh` is false if the key had started it before."""

    run: str
    name: str
    fresh: bool
    warnings: list[str]
