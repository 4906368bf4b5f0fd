"""Panels of a run that goes through stages: the strip of its stages, and what was done when. Pure."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from runs.panels.shapes import Maybe, Metric, Number, PanelBase, Shape, unique

#: How a stage stands. One that measures has ended, and its gates wait for what its result is worth.
Standing = Literal[
    "waiting",
    "running",
    "measuring",
    "paused",
    "ended",
    "reused",
    "passed unchanged",
    "gate stopped",
    "overridden",
    "failed",
    "cancelled",
]

#: How a stretch of work stands.
Doing = Literal["done", "running", "failed", "cancelled"]


class Measured(Shape):
    """One figure, with its interval if that is known."""

    metric: Metric
    value: Number
    low: Maybe = None
    high: Maybe = None


class Stage(Shape):
    """One stage. `inside` is the share of it that is done, if it is under way and that is known.

    `left_s` is the seconds that it then has left by the log of its run, if these can be told.
    """

    #: From 1.
    number: int
    name: str
    #: What it does: a kind of run.
    what: str
    state: Standing
    inside: float | None = Field(default=None, ge=0, le=1)
    left_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    #: Its gate in at most four words; empty if it has none.
    gate: str = ""
    figure: Measured | None = None
    #: It has ended, and no later stage takes what it gives.
    aside: bool = False
    #: Its runs that have begun, the one that a click opens first.
    runs: tuple[str, ...] = ()


class Strip(PanelBase):
    """Stages in their order."""

    kind: Literal["strip"] = "strip"
    #: The word for one stage.
    unit: str
    stages: tuple[Stage, ...]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        unique("stage", (stage.number for stage in self.stages))
        return self


class Bar(Shape):
    """A stretch of time, in seconds since the panel's beginning.

    `start` is None if only the end was recorded, `end` if it has not ended.
    """

    name: str
    start: Maybe
    end: Maybe
    state: Doing
    #: The run that it is, or that it is part of.
    run: str | None = None

    @model_validator(mode="after")
    def _forwards(self) -> Self:
        if self.start is None and self.end is None:
            raise ValueError(f"bar {self.name} has neither a start nor an end")
        if self.start is not None and self.end is not None and self.end < self.start:
            raise ValueError(f"bar {self.name} ends before it starts")
        return self


class Lane(Shape):
    """Bars in one row; lanes of one `group` stand together."""

    name: str
    group: str = ""
    bars: tuple[Bar, ...]


class Timeline(PanelBase):
    """Work of a run and its children over time."""

    kind: Literal["timeline"] = "timeline"
    #: The time that seconds count from.
    began: AwareDatetime
    #: Seconds until the newest time that is known: bars that go on are drawn up to it.
    until: float = Field(ge=0, allow_inf_nan=False)
    lanes: tuple[Lane, ...]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        unique("lane", ((lane.group, lane.name) for lane in self.lanes))
        return self
