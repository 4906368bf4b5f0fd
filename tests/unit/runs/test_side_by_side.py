"""Runs side by side: when results compare, which settings differ, which lines share a chart."""

from __future__ import annotations

from typing import Any

import pytest

from agent_forge.runs.errors import ConfigError
from agent_forge.runs.panels.head import Head, Result
from agent_forge.runs.panels.panels import Axis, Lines, Metric, Panel, Series, Units
from agent_forge.runs.panels.side_by_side import ComparedRun, side_by_side

LOSS = Metric(name="loss", better="down")


def head(run: str, kind: str = "toy", metric: Metric | None = LOSS, on: str = "test") -> Head:
    result = metric and Result(name="model", metric=metric, value=1.5, on=on)
    return Head(
        run=run,
        kind=kind,
        title="a run",
        status="completed",
        place=3,
        result=result,
        done=2,
        of=2,
        unit="step",
    )


def seen(own: Head, panels: tuple[Panel, ...] = (), data: str = "d", **settings: Any) -> ComparedRun:
    why = "they were measured on other data"
    return ComparedRun(own, panels, settings, {why: data}, f"lineage of {own.run}")


def lines(*names: str, unit: str = "", title: str = "Training") -> Lines:
    series = tuple(Series(name=name, x=(0.0, 1.0), y=(2.0, None)) for name in names)
    return Lines(
        name="training",
        title=title,
        says="",
        x=Axis(name="step"),
        y=Axis(name="loss", unit=unit),
        series=series,
    )


TABLE = Units(name="tasks", title="Tasks", says="", unit="task", columns=(), rows=())


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (seen(head("b")), None),
        (seen(head("b", kind="bake")), "of two kinds, toy and bake"),
        (seen(head("b", metric=None)), "b has no result yet"),
        (seen(head("b"), data="other"), "measured on other data"),
        (seen(head("b", metric=Metric(name="gain"))), "one result is loss, the other gain"),
        (seen(head("b", on="selection")), "of the test, the other of the selection"),
    ],
)
def test_it_is_said_why_results_do_not_compare(other: ComparedRun, why: str | None) -> None:
    [judgement] = side_by_side([seen(head("a")), other]).judgements
    assert (judgement.why_not is None) if why is None else why in str(judgement.why_not)


def test_settings_that_differ_have_a_value_for_each_run() -> None:
    found = side_by_side([seen(head("a"), seed=1, steps=2), seen(head("b"), steps=2, rate=0.5)])
    told = {row.name: row.values for row in found.settings}
    assert told == {"seed": (1, None), "rate": (None, 0.5)}


def test_lines_of_one_name_share_a_chart_and_other_panels_stand_beside_each_other() -> None:
    """A line that one run alone has is left out: there is nothing to compare it with."""
    a = seen(head("a"), (lines("base", "code"), TABLE))
    b = seen(head("b"), (lines("base", "code", "math"), TABLE))
    found = side_by_side([a, b])
    charts = {panel.title: [line.name for line in panel.series] for panel in found.lines}
    assert charts == {"Training: base": ["a", "b"], "Training: code": ["a", "b"]}
    assert [panel.name for panel in found.lines] == ["training-base", "training-code"]
    assert [[own.run for own in one.panels] for one in found.beside] == [["a", "b"]]


def test_single_lines_are_laid_over_each_other_whatever_their_names() -> None:
    a, b = (seen(head(run), (lines(name),)) for run, name in (("a", "ours"), ("b", "full")))
    [panel] = side_by_side([a, b]).lines
    assert (panel.name, panel.title) == ("training", "Training")
    assert [line.name for line in panel.series] == ["a", "b"]


def test_lines_along_other_axes_are_not_laid_over_each_other() -> None:
    a, b = seen(head("a"), (lines("base"),)), seen(head("b"), (lines("base", unit="nat"),))
    assert side_by_side([a, b]).lines == ()


@pytest.mark.parametrize("count", [1, 7])
def test_two_to_six_runs_are_compared(count: int) -> None:
    with pytest.raises(ConfigError, match="2 to 6 runs"):
        side_by_side([seen(head(str(n))) for n in range(count)])
