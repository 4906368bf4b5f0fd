"""Pipelines over real models in miniature: cognate → evomerge, in some twenty seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent_forge.pipeline.events import PipelineState
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.worker.commands import submit as validate
from testing.kind_runs import KindRuns, record
from testing.miniatures import small_text

#: A lead that no champion has; PHASES pass the base on unchanged below it.
UNHEARD = 1e9
SOURCES = ["specialists:code", "specialists:math", "specialists:data"]
#: Models in miniature, a gate that passes, and one that passes the base on unchanged.
PHASES: list[dict[str, Any]] = [
    {
        "name": "specialists",
        "kind": "cognate",
        "settings": {"preset": "mini", "domains": small_text.DOMAINS},
        "data": [str(small_text.file())],
        "gates": [{"metric": "lead", "at_least": -10}],
    },
    {
        "name": "merge",
        "kind": "evomerge",
        "models": {"base": "specialists:base", "sources": SOURCES},
        "data": ["specialists:items"],
        "settings": {
            "generations": 1,
            "search_windows": 3,
            "search_questions": 2,
            "search_problems": 2,
            "evaluation_dtype": "model",
            "seed": 3,
        },
        "unchanged": "specialists:base",
        "gates": [{"metric": "lead_over_sources", "at_least": UNHEARD, "otherwise": "pass unchanged"}],
    },
]

finish = KindRuns[PipelineState]("pipeline", "p").finish


def passing() -> list[dict[str, Any]]:
    """Return the phases with a second gate that passes every champion."""
    first, second = PHASES
    gates = [{**second["gates"][0], "at_least": -UNHEARD}]
    return [first, {**second, "gates": gates}]


def submit(
    home: Home,
    phases: list[dict[str, Any]] = PHASES,
    run: str = "p",
    reuse: bool = False,
    **settings: Any,
) -> str:
    """Submit a pipeline; return its name."""
    plan = validate.plan(RunRequest("pipeline", {"phases": phases, **settings}))
    return record(home, replace(plan, fields={**plan.fields, "reuse": reuse}), run)
