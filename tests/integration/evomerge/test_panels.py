"""Panels of a merging run that real models went through, beside its report and its page."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from agent_forge.runs import kinds
from agent_forge.runs.history import repository
from agent_forge.runs.kinds.view import overview
from agent_forge.runs.panels.panels import Panel
from agent_forge.runs.panels.tables import table
from testing.worlds.finished_run import FinishedRun


def rows_of(panel: Panel) -> list[dict[str, Any]]:
    """Return a panel's table as dictionaries."""
    columns, rows = table(panel)
    return [dict(zip(columns, row, strict=True)) for row in rows]


@pytest.mark.slow
def test_panels_of_a_finished_run_have_the_figures_of_report_and_page(
    finished_run: FinishedRun,
) -> None:
    """The report in the champion's folder, the page and the panels are one calculation."""
    home, state = finished_run(generations=1)
    kind = kinds.of("evomerge")
    with closing(home.open_store()) as store:
        report = kind.view.report(state, list(repository.history(store, "r")))
    page, seen = kind.view.fields(state), overview(state)
    panels = {panel.name: panel for panel in seen.panels}
    ours, *rivals = rows_of(panels["rivals"])
    assert ours["value"] == report["test"]["score"] == page["headline"]["score"]
    assert [
        (r["group"], r["value"], r["lead value"], r["lead low"], r["lead high"]) for r in rivals
    ] == [(r["kind"], r["score"], r["lead"], r["low"], r["high"]) for r in report["rivals"]]
    assert seen.head.result
    assert seen.head.result.value == page["headline"]["score"]
    assert seen.head.result.lead
    assert seen.head.result.lead.low == page["headline"]["low"]
    found = rows_of(panels["generations"])
    for row, expected in zip(found, report["generations"], strict=True):
        assert {name: row[name] for name in expected} == expected
    assert found[-1]["evaluations"] == report["spent"]["evaluations"]
    matrix = rows_of(panels["domains"])
    assert page["skills"] == report["skills"]
    for row in page["skills"]["rows"]:
        cells = [cell for cell in matrix if cell["row"] == row["skill"]]
        assert [cell["value"] for cell in cells] == [row["champion"], *row["others"].values()]
        assert {cell["metric"] for cell in cells} == {row["metric"]}
    front = rows_of(panels["front"])
    kept = [row["point"] for row in front if row["kept"]]
    assert kept == [row["candidate"] for row in report["front"]["candidates"]]
