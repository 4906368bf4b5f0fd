"""Panels of merging runs: every figure is that of the page's rows and of the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_forge.events import Envelope
from agent_forge.evomerge.reports import generation_rows, report, search_statistics, skills
from agent_forge.evomerge.reports import rows as headline
from agent_forge.evomerge.reports.panels import distinct
from agent_forge.evomerge.reports.pictures import family_svg
from agent_forge.evomerge.run.state import RunState, fold
from agent_forge.runs.kinds.view import overview
from agent_forge.runs.panels.head import Panels
from testing.worlds.fake_world import World

GOLDEN = Path(__file__).parents[3] / "golden"


def golden(name: str) -> RunState:
    """Return the state of a golden log."""
    lines = (GOLDEN / f"{name}.jsonl").read_text("utf-8").splitlines()
    return fold([Envelope(**json.loads(line)) for line in lines])


def told(state: RunState) -> tuple[Panels, dict[str, Any]]:
    """Return what is shown of a run, and its panels by name."""
    found = overview(state)
    return found, {panel.name: panel for panel in found.panels}


def agree(state: RunState) -> dict[str, Any]:
    """Compare every figure of the panels with the rows of page and report; return the panels."""
    seen, panels = told(state)
    head = headline.headline(state)
    assert (seen.head.result is None) == (head is None)
    if seen.head.result and head:
        assert seen.head.result.value == head["score"]
        assert seen.head.result.n == head["items"]
        own = seen.head.result.lead
        assert (own and (own.value, own.low, own.high)) == (
            None if head["lead"] is None else (head["lead"], head["low"], head["high"])
        )
    rows = generation_rows.rows(state, generation_rows.PAGE)
    table = panels["generations"]
    names = [column.name for column in table.columns]
    for row, cells in zip(rows, table.rows, strict=True):
        shown = dict(zip(names, cells, strict=True))
        assert {k: shown[k] for k in row if k != "components"} == {
            k: v for k, v in row.items() if k != "components"
        }
    for panel, names_ in (
        ("champion-score", ["champion"]),
        ("scores", ["best", "mean"]),
        ("diversity", ["diversity"]),
    ):
        series = {s.name: s.y for s in panels[panel].series} if rows else {}
        for name in names_ if rows else ():
            assert list(series[name]) == [row[name] for row in rows]
    if rows:
        _curves(rows, panels)
    _front(state, panels)
    _domains(state, panels)
    if state.completed:
        _rivals(state, panels)
    if state.champion:
        found = family_svg.lineage(state, state.champion)
        assert [n.id for n in panels["lineage"].nodes] == [n["id"] for n in found["nodes"]]
        assert [n.value for n in panels["lineage"].nodes] == [n["score"] for n in found["nodes"]]
        assert len(panels["lineage"].edges) == len(found["edges"])
    return panels


def _curves(rows: list[dict[str, Any]], panels: dict[str, Any]) -> None:
    """Compare spread, changes of champion and components with the generations' rows."""
    mean = next(s for s in panels["scores"].series if s.name == "mean")
    for row, low, high in zip(rows, mean.low, mean.high, strict=True):
        known = None not in (row["mean"], row["spread"])
        ends = (row["mean"] - row["spread"], row["mean"] + row["spread"]) if known else (None, None)
        assert (low, high) == ends
    changes = panels["champion-score"].series[1]
    assert [y is not None for y in changes.y] == [row["changed"] for row in rows]
    parts = {s.name: s.y for s in panels["components"].series} if "components" in panels else {}
    for name in {name for row in rows for name in row["components"]}:
        assert list(parts[name]) == [row["components"].get(name) for row in rows]


def _front(state: RunState, panels: dict[str, Any]) -> None:
    found = search_statistics.front(state)
    assert (found is None) == ("front" not in panels)
    if found:
        shown = {(p.id, p.kept): list(p.values) for p in panels["front"].points}
        assert shown == {
            (row["candidate"], kept): row["values"]
            for kept, part in ((True, "candidates"), (False, "dominated"))
            for row in found[part]
        }


def _domains(state: RunState, panels: dict[str, Any]) -> None:
    found = skills.data(state)
    assert bool(found and found["rows"]) == ("domains" in panels)
    if found and found["rows"]:
        matrix = panels["domains"]
        assert list(matrix.rows) == [row["skill"] for row in found["rows"]]
        assert [m.name for m in matrix.metrics] == [row["metric"] for row in found["rows"]]
        for row, values in zip(found["rows"], matrix.values, strict=True):
            assert list(values) == [row["champion"], *row["others"].values()]


def _rivals(state: RunState, panels: dict[str, Any]) -> None:
    arms, said = panels["rivals"], report.ending(state)
    ours, *others = arms.arms
    assert ours.value == said["test"]["score"]
    assert arms.says.startswith(said["verdict"]["sentence"])
    measured = panels["measures"]
    for name, values in zip(measured.rows, measured.values, strict=True):
        assert list(values) == [
            said["test"]["components"][name],
            *(row[name] for row in said["rivals"]),
        ]
    for arm, row in zip(others, said["rivals"], strict=True):
        assert (arm.group, arm.value) == (row["kind"], row["score"])
        lead = (arm.lead.value, arm.lead.low, arm.lead.high) if arm.lead else (None,) * 3
        assert lead == (row["lead"], row["low"], row["high"])
        if arm.lead:
            assert arm.lead.verdict == row["verdict"]


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("schema-*.jsonl")))
def test_every_figure_of_a_golden_log_is_the_reports(name: str) -> None:
    """Two places that compute one figure will differ one day."""
    state = golden(name)
    assert agree(state) if state.started else set(told(state)[1]) == {"tasks"}


def test_the_median_is_that_of_the_scores() -> None:
    """No other row has it."""
    state = golden("schema-1-1")
    panels = told(state)[1]
    median = next(s for s in panels["scores"].series if s.name == "median")
    for number, value in zip(median.x, median.y, strict=True):
        scores = sorted(s for s in state.generations[int(number)].scores if s is not None)
        half = len(scores) // 2
        middle = scores[half] if len(scores) % 2 else (scores[half - 1] + scores[half]) / 2
        assert value == middle


def test_a_run_is_shown_after_each_of_its_events() -> None:
    """A page at any place of the history shows what there was, and nothing is invented before."""
    world = World()
    world.run()
    state = RunState()
    seen: list[set[str]] = []
    for row in world.rows:
        state.absorb([row])
        panels = told(state)[1]
        seen.append(set(panels))
        if "generations" in panels:
            agree(state)
    assert seen[0] == {"tasks"}
    assert seen[-1] >= {"rivals", "champion-score", "scores", "diversity", "generations", "lineage"}


def test_names_that_occur_twice_are_told_apart() -> None:
    """A source may be called like the base, or `champion`."""
    names = distinct(
        ["champion", "a", "a", "champion", "a"], ["", "base", "source", "source", "source"]
    )
    assert names == ["champion", "a", "a (source)", "champion (source)", "a (source 2)"]
