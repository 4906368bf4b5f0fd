"""Head of a run: its result, how far it is, what it does now. Pure plain data, with the panels."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import model_validator

from agent_forge.runs.panels.panels import Lead, Maybe, Metric, Number, Panel, Shape, unique
from agent_forge.runs.system.durations import duration, size

#: Digits of a power, as they stand behind its base.
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

#: A row of a table of the log, which a kind fills: column → value.
Entry = dict[str, Any]


class Result(Shape):
    """Result of the run: a value with its interval, if that is known, over `n` items."""

    #: What has the value: "champion", and the id of its model if it is one; its name in the run's
    #: table of models, if it has one there.
    name: str
    model: str | None = None
    called: str = ""
    metric: Metric
    value: Number
    low: Maybe = None
    high: Maybe = None
    #: The alternative that it is told beside, and its lead over it.
    over: str | None = None
    lead: Lead | None = None
    #: What it was measured on, and on how many items; `items` is the word for these.
    on: str = ""
    n: int | None = None
    items: str = "items"
    #: The value in a sentence, if name and metric do not make one.
    says: str = ""


def listed(metric: Metric, value: float | None, on: str = "") -> Entry:
    """Return the columns of a result in the run list: metric, value, unit, better, measured_on."""
    return {
        "metric": metric.name,
        "value": value,
        "unit": metric.unit,
        "better": metric.better,
        "measured_on": on,
    }


def in_words(metric: str, value: float | None, unit: str, better: str | None) -> str:
    """Return the result of a row of the run list in a few words; "-" if there is none.

    "98.46 % kept", "0.6195 ratio of divergences ↓": an arrow says that lower values are better.
    """
    if value is None:
        return "-"
    return f"{quantity(value, unit)} {metric}{' ↓' if better == 'down' else ''}"


def quantity(value: float, unit: str) -> str:
    """Return a value as people read it: "98.46 %", "4.4 MiB", "42.0 s"; of other units the number."""
    if unit == "share":
        return f"{digits(round(100 * value, 10))} %"
    return {"B": size, "s": duration}.get(unit, digits)(value)


def measured(value: float, unit: str, low: float | None = None, high: float | None = None) -> str:
    """Return a value with its unit and its interval: "0.06047 nat/token (0.03152 to 0.08749)"."""
    beside = "" if unit in ("", "share", "B", "s") else f" ({unit})" if " " in unit else f" {unit}"
    ends = "" if low is None or high is None else f" ({quantity(low, unit)} to {quantity(high, unit)})"
    return f"{quantity(value, unit)}{beside}{ends}"


def digits(value: float) -> str:
    """Return a number as people read it: 28,960, four significant digits, or 1.979 × 10⁻⁵."""
    whole = abs(value) >= 1000 or value == int(value)
    mantissa, _, power = (f"{value:,.0f}" if whole else f"{value:#.4g}").partition("e")
    times = f" × 10{str(int(power)).translate(RAISED)}" if power else ""
    return mantissa.replace("-", "−") + times


class Fact(Shape):
    """A further fact that a kind shows beside its result."""

    name: str
    value: int | Number | str
    unit: str = ""

    def words(self) -> str:
        """Return the value with its unit as a text."""
        if isinstance(self.value, str):
            return f"{self.value} {self.unit}".rstrip()
        return measured(self.value, self.unit)


class OpenPart(Shape):
    """The run that is a task of another and that is worked on, or waits for a device."""

    run: str
    #: What it is in the other run: "phase 8 of 9, mixed".
    name: str
    #: Share of its work that is done, 0 to 1, and the seconds that it has left at most.
    inside: Maybe = None
    eta_s: Maybe = None
    #: Both in words, with the units that are done.
    progress: str = ""


class Live(Shape):
    """Current activity of the run, from leases and heartbeats: the log has none of it."""

    live: Literal[True] = True
    #: The task under way in words, and how many devices work.
    doing: str | None
    at_work: int = 0
    #: What the run waits for, if nothing of it is under way.
    waits_for: str | None = None
    #: The command that ends the wait, if there is one.
    helps: str | None = None
    #: Share of the work that is done, 0 to 1, with work inside of tasks; seconds left at most.
    inside: Maybe = None
    eta_s: Maybe = None
    #: The run of its open task, if its tasks are runs.
    part: OpenPart | None = None
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
    #: What the run has found, in a sentence or two; empty if its kind does not say it so.
    verdict: str = ""
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
