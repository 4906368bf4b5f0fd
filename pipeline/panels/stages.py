"""The strip of a pipeline's phases: how each stands, its gates in four words, its figure. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent_forge.pipeline import plan
from agent_forge.pipeline.events import GateDecided, PipelineState
from agent_forge.pipeline.panels import gates
from agent_forge.runs.event_types import Figure
from agent_forge.runs.kinds.decide import pending
from agent_forge.runs.kinds.view import outlook
from agent_forge.runs.panels.shapes import Metric
from agent_forge.runs.panels.stages import Measured, Stage, Standing, Strip
from agent_forge.runs.record.lineage import Child

#: Verdicts of gates, the one that is told first if a phase has several.
TELLING = ("stop", "pass unchanged", "pass")


def strip(state: PipelineState, children: Sequence[Child] | None) -> Strip:
    """Return the phases as stages; `children`: the pipeline's runs at this moment, None if unknown."""
    row_stages = stages(state, children)
    ended = sum(state.ended_phase(stage.number) is not None for stage in row_stages)
    return Strip(
        name="strip",
        title="Phases in a row",
        says=f"{ended} of {len(row_stages)} phases have ended.",
        unit="phase",
        stages=tuple(row_stages),
    )


def stages(state: PipelineState, children: Sequence[Child] | None) -> list[Stage]:
    """Return the phases as stages."""
    return [_stage(state, number, children) for number in state.numbers]


def names(state: PipelineState, children: Sequence[Child]) -> dict[str, str]:
    """Return run → what it is in the pipeline: "2 merge", "2 merge, measurement"."""
    suffixes = {"phase": "", "measure": ", measurement"}
    names_by_run: dict[str, str] = {}
    for child in children:
        work, number = child.task.split("/")[:2]
        name = f"{number} {state.named(int(number))}{suffixes[work]}"
        again = sum(
            other == name or other.startswith(f"{name}, run ") for other in names_by_run.values()
        )
        names_by_run[child.run] = f"{name}, run {again + 1}" if again else name
    return names_by_run


def _stage(state: PipelineState, number: int, children: Sequence[Child] | None) -> Stage:
    phase = state.submitted.config.phase(number)
    runs = list(_runs(state, number, children or ()))
    standing, at_work = _standing(state, number, runs)
    if children is None and number in _open(state):
        standing = "measuring" if plan.measuring(state, number) else "running"
    working = at_work if standing in ("running", "measuring") else None
    run_outlook = outlook(working.state) if working and working.state.started else None
    taken = (ended.child,) if (ended := state.ended_phase(number)) and ended.reused else ()
    return Stage(
        number=number,
        name=phase.name,
        what=phase.kind,
        state=standing,
        inside=run_outlook.inside if run_outlook else None,
        left_s=run_outlook.eta_s if run_outlook else None,
        gate=_gate(state, number),
        aside=bool(ended and ended.models) and not state.submitted.config.goes_on(number),
        figure=_figure(state, number),
        runs=tuple(dict.fromkeys((*taken, *(child.run for child in runs)))),
    )


def _runs(state: PipelineState, number: int, children: Sequence[Child]) -> Iterator[Child]:
    """Yield a phase's runs: the one whose models count, its measurement, those that were given up."""
    runs = [c for c in children if c.task.split("/")[1] == str(number)]
    newest = {plan.child_name(state, number), plan.child_name(state, number, "measure")}
    first = [child for child in runs if child.run in newest]
    yield from sorted(first, key=lambda child: child.task.startswith("measure/"))
    yield from (child for child in runs if child.run not in newest)


def _standing(
    state: PipelineState, number: int, runs: Sequence[Child]
) -> tuple[Standing, Child | None]:
    """Return how a phase stands, and its run or measurement that is under way."""
    measuring = plan.measuring(state, number)
    if living := [child for child in runs if not child.state.ended]:
        words: dict[str, Standing] = {"submitted": "waiting", "running": "running"}
        if living[-1].state.paused:
            return "paused", living[-1]
        return "measuring" if measuring else words[living[-1].state.status], living[-1]
    if number in state.overridden:
        return "overridden", None
    if any(gate.verdict == "stop" for gate in state.gates.get(number, ())):
        return "gate stopped", None
    if number in state.passed:
        return "passed unchanged", None
    troubles = state.troubles(number, "measure" if state.ended_phase(number) else "phase")
    if troubles and state.measured_phase(number) is None:
        return ("cancelled" if troubles[-1].status == "cancelled" else "failed"), None
    if measuring:
        return "measuring", None
    ended = state.ended_phase(number)
    if ended is None:  # a run that has ended stands so until its end is recorded
        return ("running" if runs else "waiting"), None
    return ("reused" if ended.reused else "ended"), None


def _open(state: PipelineState) -> set[int]:
    """Return the phases whose run, or its measurement, is an open task of the pipeline."""
    tasks = (key.split("/") for key in pending(state))
    return {int(parts[1]) for parts in tasks if parts[0] in ("phase", "measure")}


def _gate(state: PipelineState, number: int) -> str:
    """Return a phase's gates in at most four words; the figure beside them has its name."""
    phase_gates, decided = plan.gates(state, number), state.gates.get(number, ())
    if not phase_gates:
        return ""
    if not decided:
        return "1 gate waits" if len(phase_gates) == 1 else f"{len(phase_gates)} gates wait"
    decision = _telling(decided)
    if decision.verdict == "pass":
        return "1 gate passes" if len(decided) == 1 else f"{len(decided)} gates pass"
    if decision.verdict == "stop" and number in state.overridden:
        return "gate overridden"
    return "gate not met"


def _telling(decided: Sequence[GateDecided]) -> GateDecided:
    """Return the verdict that says most: the first that stops, or else that passes the input on."""
    return min(decided, key=lambda decision: TELLING.index(decision.verdict))


def _figure(state: PipelineState, number: int) -> Measured | None:
    """Return the figure that the telling gate decided by, or else the phase's first figure."""
    if decided := state.gates.get(number, ()):
        decision = _telling(decided)
        if decision.figure is not None:
            metric = gates.metric(state, number, decision.gate.metric, decision.gate)
            return _measured(metric, decision.figure)
    for name, figure in state.figures(number).items():
        return _measured(gates.metric(state, number, name, None), figure)
    return None


def _measured(metric: Metric, figure: Figure) -> Measured:
    return Measured(metric=metric, value=figure.value, low=figure.low, high=figure.high)
