"""Panels of a run's stages: the strip of stages, and the timeline of its children and tasks. Pure.

A child lasts from its first event to its end. A task ends when its event was recorded, and began as
many seconds earlier as the event says that the task took; if an event has no seconds, only its end is
known. Devices are known by the actor of an event: a worker, which has one device, or the user whose
command carries out the run itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from agent_forge.runs.panels.shapes import Maybe, Metric, Number, PanelBase, Shape, unique
from agent_forge.runs.record.lineage import Child, Line, elapsed

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


#: Groups of lanes.
RUNS, DEVICES = "runs", "devices"
#: What begins the actor of a worker's events.
WORKER = "worker/"


def timeline(children: Sequence[Child], names: Mapping[str, str]) -> Timeline | None:
    """Return the timeline of a run's children; `names`: run → what it is called. None without any."""
    if not children:
        return None
    began = min((child.began for child in children), key=datetime.fromisoformat)
    until = max(_since(began, child.lines[-1].recorded_at) for child in children)
    lanes = [*_runs(began, children, names), *_devices(began, children, names)]
    failed = sum(line.outcome == "failed" for child in children for line in child.lines)
    tasks = sum(line.outcome == "done" for child in children for line in child.lines)
    summary = f"{_count(len(children), 'run')}, {_count(tasks, 'task')} done"
    return Timeline(
        name="timeline",
        title="Timeline",
        says=summary + (f", {_count(failed, 'attempt')} failed." if failed else "."),
        began=datetime.fromisoformat(began),
        until=until,
        lanes=tuple(lanes),
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def _since(began: str, time: str) -> float:
    """Return the seconds from one recorded time to another; 0 if a clock was set back."""
    return max(0.0, elapsed(began, time).total_seconds())


def _runs(began: str, children: Sequence[Child], names: Mapping[str, str]) -> Iterator[Lane]:
    """Yield a lane for each child, in the order in which they began."""
    for child in sorted(children, key=lambda run_child: (run_child.lines[0].position, run_child.run)):
        start = _since(began, child.began)
        end = _since(began, child.ended) if child.ended else None
        name = names.get(child.run, child.run)
        run = Bar(
            name=name, start=start, end=end and max(start, end), state=_state(child), run=child.run
        )
        troubles = (
            _bar(began, line, name, child.run) for line in child.lines if line.outcome == "failed"
        )
        yield Lane(name=name, group=RUNS, bars=(run, *troubles))


def _state(child: Child) -> Doing:
    words: dict[str, Doing] = {"completed": "done", "failed": "failed", "cancelled": "cancelled"}
    return words.get(child.state.status, "running")


def _devices(began: str, children: Sequence[Child], names: Mapping[str, str]) -> Iterator[Lane]:
    """Yield a lane for each device or process that did tasks, with all of its tasks."""
    bars_by_actor: dict[str, list[Bar]] = {}
    for child in children:
        for line in child.lines:
            if line.outcome:
                name = names.get(child.run, child.run)
                bars_by_actor.setdefault(line.actor, []).append(_bar(began, line, name, child.run))
    for actor in sorted(bars_by_actor):
        bars = sorted(bars_by_actor[actor], key=lambda bar: (bar.end or 0.0, bar.name))
        yield Lane(name=_called(actor), group=DEVICES, bars=tuple(bars))


def _called(actor: str) -> str:
    worker = actor.removeprefix(WORKER)
    return worker if worker != actor else f"command started by {actor}"


def _bar(began: str, line: Line, of: str, run: str) -> Bar:
    end = _since(began, line.recorded_at)
    start = None if line.seconds is None else max(0.0, end - line.seconds)
    state = "failed" if line.outcome == "failed" else "done"
    return Bar(name=f"{of}: {line.task}", start=start, end=end, state=state, run=run)
