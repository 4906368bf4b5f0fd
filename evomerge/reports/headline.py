"""Headline of a run's page: its score, and the number of items of each slice. Pure."""

from __future__ import annotations

from typing import Any

from evaluation.data.slices import Slice
from evomerge.config import EvoMergeConfig
from evomerge.reports import report
from evomerge.run.state import RunState
from runs.panels.shapes import Metric

SLICES: tuple[Slice, ...] = ("search", "selection", "test")


def items(state: RunState) -> dict[str, int] | None:
    """Return how many items a model is measured on: of search a generation's draw, else the slice."""
    if state.started is None:
        return None
    draws = {s: state.draws(s, 0 if s == "search" else None) for s in SLICES}
    return {
        s: sum(len(d.windows) + len(d.questions) + len(d.problems) for d in drawn.values())
        for s, drawn in draws.items()
    }


def fitness(config: EvoMergeConfig) -> Metric:
    """Return the metric of a run's scores: relative to the best source, or plain."""
    relative = config.normalise != "none"
    return Metric(name="fitness", unit="1 = the best source" if relative else "", better="up")


def headline(state: RunState) -> dict[str, Any] | None:
    """Return the champion's score to show first: on the test slice, before it on selection.

    The score on selection flatters: the champion was chosen by it. The one on test comes with the lead
    over the best source (or the base) and its 95 % interval.
    """
    if state.champion is None or state.submitted is None:
        return None
    counts = items(state) or {}
    metric = fitness(state.submitted.config)
    unit = ", ".join(filter(None, (metric.name, metric.unit)))
    if state.completed is None:
        figure = {"slice": "selection", "score": state.champions[-1].score, "over": None}
        return {
            **figure,
            "lead": None,
            "low": None,
            "high": None,
            "unit": unit,
            "items": counts.get("selection"),
        }
    rivals = [r for r in report.rivals(state) if r["kind"] != "baseline" and r["score"] is not None]
    best = max(rivals, key=lambda r: r["score"], default=None)
    lead = {k: best[k] if best else None for k in ("lead", "low", "high")}
    figure = {"slice": "test", "score": state.completed.test.scalar}
    return {
        **figure,
        "over": best["name"] if best else None,
        **lead,
        "unit": unit,
        "items": counts.get("test"),
    }
