"""Pipelines of toy runs (`testing/toy/toy_kind.py`): phases and gates, without torch."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.worker.commands import submit as commands_submit
from agent_forge.worker.commands import submit as validate


def phase(
    name: str, gate: dict[str, Any] | None = None, kind: str = "toy", **settings: Any
) -> dict[str, Any]:
    """Return a phase that counts."""
    gates = [gate] if gate else []
    return {"name": name, "kind": kind, "settings": settings, "gates": gates}


#: Two phases, the second behind a gate that passes.
TWO = [phase("first", {"metric": "total", "at_least": 1}, seed=1), phase("second", seed=2, steps=3)]


def submit(
    home: Home, phases: list[dict[str, Any]] = TWO, run: str = "p", reuse: bool = False, **queued: Any
) -> str:
    """Submit a pipeline; return its name."""
    plan = validate.plan(RunRequest("pipeline", {"phases": phases}))
    plan = replace(plan, fields={**plan.fields, "reuse": reuse})
    with closing(home.open_store()) as store:
        return commands_submit.submit(store, plan, run, **queued)
