"""Head of a run: its result, how far it is, what it does now. Pure plain data, with the panels."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from runs.panels.panels import Lead, Maybe, Metric, Number, Panel, Shape, unique


class Result(Shape):
    """Result of the run: a value with its interval, if that is known, over `n` items."""

    #: What has the value: "champion", and the id of its model if it is one.
    name: str
    model: str | None = None
    metric: Metric
    value: Number
    low: Maybe = None
    high: Maybe = None
    #: The alternative that it is told beside, and its lead over it.
    over: str | None = None
    lead: Lead | None = None
    #: What it was measured on, and on how many items.
    on: str = ""
    n: int | None = None
    #: The value in a sentence, if name and metric do not make one.
    says: str = ""


class Fact(Shape):
    """A further fact that a kind shows beside its result."""

    name: str
    value: int | Number | str
    unit: str = ""


class Live(Shape):
    """Current activity of the run, from leases and heartbeats: the log has none of it."""

    live: Literal[True] = True
    #: The task under way in words, and how many devices work.
    doing: str | None
    at_work: int = 0
    #: What the run waits for, if nothing of it is under way.
    waits_for: str | None = None
    #: Share of the work that is done, 0 to 1, with work inside of tasks; seconds left at most.
    inside: Maybe = None
    eta_s: Maybe = None
    #: Both in words, with the units that are done: one text for page and terminal.
    progress: str = ""


class Head(Shape):
    """Head of a run: it is shown first."""

    run: str
    #: The kind of run; the discriminators of panels are another matter.
    kind: str
    title: str
    status: str
    #: The number of events that this is seen after.
    place: int
    result: Result | None = None
    #: Units that are done, and all of them if they are known.
    done: int
    of: int | None
    unit: str
    facts: tuple[Fact, ...] = ()
    #: None for a run that has ended, and at a place of the past.
    now: Live | None = None


class Panels(Shape):
    """All that is shown of a run."""

    head: Head
    panels: tuple[Panel, ...]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        unique("panel", (panel.name for panel in self.panels))
        return self
