"""Headline of a run's page: its score, the number of items of each slice, results by domain. Pure."""

from __future__ import annotations

from typing import Any

from evaluation.data.slices import Slice
from evomerge.fitness.composite import Components
from evomerge.reports import report
from evomerge.run.state import RunState

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


def headline(state: RunState) -> dict[str, Any] | None:
    """Return the champion's score to show first: on the test slice, before it on selection.

    The score on selection flatters: the champion was chosen by it. The one on test comes with the lead
    over the best source (or the base) and its 95 % interval.
    """
    if state.champion is None or state.submitted is None:
        return None
    counts = items(state) or {}
    relative = state.submitted.config.normalise != "none"
    unit = "fitness, 1 = the best source" if relative else "fitness"
    if state.completed is None:
        told = {"slice": "selection", "score": state.champions[-1].score, "over": None}
        return {
            **told,
            "lead": None,
            "low": None,
            "high": None,
            "unit": unit,
            "items": counts.get("selection"),
        }
    given = [r for r in report.rivals(state) if r["kind"] != "baseline" and r["score"] is not None]
    best = max(given, key=lambda r: r["score"], default=None)
    lead = {k: best[k] if best else None for k in ("lead", "low", "high")}
    told = {"slice": "test", "score": state.completed.test.scalar}
    return {
        **told,
        "over": best["name"] if best else None,
        **lead,
        "unit": unit,
        "items": counts.get("test"),
    }


def domains(state: RunState) -> dict[str, Any] | None:
    """Return the champion beside the sources and the base, domain by domain, on the headline's slice.

    Perplexity for a domain that has text, else accuracy; differences come without an interval.
    """
    assert state.started
    if state.champion is None:
        return None
    slice_: Slice = "test" if state.completed else "selection"
    own = state.components((state.champion, slice_, None))
    if own is None:
        return None
    given = {s.recipe_id: s.name for s in (*state.started.sources, state.started.base)}
    others = [
        (name, state.components((id_, slice_, None)))
        for id_, name in given.items()
        if id_ != state.champion
    ]
    rows = []
    for domain in sorted({*own.domains, *own.accuracies}):
        metric = "perplexity" if domain in own.domains else "accuracy"
        rows.append(
            {
                "domain": domain,
                "metric": metric,
                "better": "down" if metric == "perplexity" else "up",
                "champion": _value(own, domain, metric),
                "others": {name: _value(c, domain, metric) for name, c in others if c},
            }
        )
    return {"slice": slice_, "rows": rows}


def _value(measured: Components, domain: str, metric: str) -> float | None:
    by_domain = measured.domains if metric == "perplexity" else measured.accuracies
    return by_domain.get(domain)
