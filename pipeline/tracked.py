"""Rows of a pipeline for a tracker: one for each phase, with its figures and verdicts. Pure."""

from __future__ import annotations

from typing import Any

from pipeline import plan
from pipeline.events import PipelineState
from runs import kinds
from runs.kinds.tracking import TEXT, TrackedName

NAMES = (
    TrackedName("phase", "count", "number of the phase; the step of every row"),
    TrackedName("name", TEXT, "name of the phase"),
    TrackedName("kind", TEXT, "kind of its run"),
    TrackedName(
        "verdict", TEXT, "pass, pass unchanged or stop; the first of its gates that is not met"
    ),
    TrackedName("gates", "count", "gates of the phase"),
    TrackedName("gates_met", "count", "gates that were met"),
    TrackedName(
        "figure/{figure}", "that of the figure", "figure of the phase's run or of its measurement"
    ),
)


def figures(state: PipelineState) -> set[str]:
    """Return the names of the figures that its phases have, or that their kinds declare."""
    phases = state.submitted.config.phases if state.submitted else ()
    names = {plan.MEASURE, *(phase.kind for phase in phases)}
    had = {figure for number in range(1, len(phases) + 1) for figure in state.figures(number)}
    return had | {figure for name in names for figure in kinds.of(name).figures_of}


def rows(state: PipelineState, after: int) -> list[tuple[int, dict[str, Any]]]:
    """Return (number, row) of each phase above `after` that has ended and whose gates are decided."""
    phases = state.submitted.config.phases if state.submitted else ()
    pairs = []
    for number, phase in enumerate(phases, start=1):
        gates = state.gates.get(number, ())
        undecided = not gates and plan.gates(state, number)
        if state.ended_phase(number) is None or undecided:
            break
        missed = [gate.verdict for gate in gates if gate.verdict != "pass"]
        row: dict[str, Any] = {
            "phase": number,
            "name": phase.name,
            "kind": phase.kind,
            "verdict": missed[0] if missed else "pass",
            "gates": len(gates),
            "gates_met": len(gates) - len(missed),
        }
        figures = state.figures(number).items()
        row |= {f"figure/{name}": figure.value for name, figure in figures}
        pairs.append((number, row))
    return [(number, row) for number, row in pairs if number > after]
