"""Decisions of a pipeline: the next phase's run, the verdicts of its gates, the end. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from agent_forge.events import New
from agent_forge.pipeline import plan
from agent_forge.pipeline.config import GateConfig
from agent_forge.pipeline.events import Completed, GateDecided, PassedThrough, PipelineState, Work
from agent_forge.runs.event_types import Figure
from agent_forge.runs.kinds.controls import UserDecision
from agent_forge.runs.kinds.decide import NextWork, failure
from agent_forge.runs.kinds.wording import figure_metric
from agent_forge.runs.panels.head import measured


def due(state: PipelineState) -> NextWork:
    """Return the `NextWork` of a started pipeline: tasks or events; at the end, `completed`."""
    phases = state.submitted.config.phases
    for number in range(1, len(phases) + 1):
        decision = _phase(state, number)
        if decision.facts or decision.tasks:
            return decision
    last = plan.outgoing(state, len(phases))
    done = Completed(
        lineage_digest=state.lineage_digest(),
        chain_head=state.head,
        models={role: model for role, (_, model) in last.items()},
    )
    return NextWork(facts=[New(done, f"{state.run}/completed")])


def _phase(state: PipelineState, number: int) -> NextWork:
    """Return the `NextWork` of a phase, tasks or events; an empty one if the phase is done."""
    ended = state.ended_phase(number)
    if ended is None:
        return _run(state, number)
    if number not in state.gates:
        if plan.to_measure(state, number) and state.measured_phase(number) is None:
            return _run(state, number, "measure")
        if verdicts := _verdicts(state, number):
            return NextWork(facts=verdicts)
    stopped = [g for g in state.gates.get(number, ()) if g.verdict == "stop"]
    if stopped and number not in state.overridden:
        return NextWork(facts=[failure(state, _stopped(state, number, stopped[0]))])
    return NextWork()


def _run(state: PipelineState, number: int, what: Work = "phase") -> NextWork:
    """Return `NextWork`: the task of a phase's run or measurement, or `failed` if none can be had."""
    if wrong := plan.missing(state, number):
        return NextWork(facts=[failure(state, f"phase {state.named(number)}: {wrong}")])
    troubles = state.troubles(number, what)
    if not troubles or troubles[-1].retries < state.retries:
        return NextWork(tasks=[plan.delegate(state, number, what)])
    last = troubles[-1]
    how = {"failed": "failed", "cancelled": "was cancelled", "refused": "could not be submitted"}
    whose = "the measurement" if what == "measure" else "run"
    reason = f"phase {last.name}: {whose} {last.child} {how[last.status]}: {last.reason}"
    return NextWork(facts=[failure(state, reason)])


def _verdicts(state: PipelineState, number: int) -> list[New]:
    """Return the verdicts of a phase's gates as new events, and `passed_through` if one says so."""
    phase, figures = state.submitted.config.phase(number), state.figures(number)
    against = plan.baselines(state, number)
    events = [_verdict(number, gate, figures, against) for gate in plan.gates(state, number)]
    facts = [
        New(event, f"{state.run}/gate/{number}/{place}") for place, event in enumerate(events, start=1)
    ]
    verdicts = {event.verdict for event in events}
    if "pass unchanged" in verdicts and "stop" not in verdicts and phase.input is not None:
        passed = PassedThrough(phase=number, reference=phase.input)
        facts.append(New(passed, f"{state.run}/passed/{number}"))
    return facts


def _verdict(
    number: int, gate: GateConfig, figures: Mapping[str, Figure], against: Mapping[str, float]
) -> GateDecided:
    """Return the `gate_decided` event of a gate. A figure that is missing does not meet its limit."""
    figure = figures.get(gate.metric)
    met = figure is not None and gate.meets(figure.value, figure.low, figure.high)
    verdict = "pass" if met else gate.otherwise
    return GateDecided(
        phase=number,
        gate=gate,
        figure=figure,
        verdict=verdict,
        baseline=against.get(gate.metric) if figure else None,
    )


def _stopped(state: PipelineState, number: int, gate: GateDecided) -> str:
    """Return a sentence: why a gate stopped the pipeline, and what a user can do."""
    name = state.named(number)
    return (
        f"the gate of phase {name} stopped it: {told(gate)}. Go on nevertheless with `forge override "
        f"{state.run} {name} --reason WHY` and `forge start --resume {state.run}`, or fork it with "
        "other settings"
    )


def stopping(state: PipelineState) -> UserDecision | None:
    """Return a `UserDecision` on the gate that has stopped a pipeline, if not overridden; or None."""
    for number, verdicts in sorted(state.gates.items()) if state.failed else ():
        stopped = [event for event in verdicts if event.verdict == "stop"]
        if stopped and number not in state.overridden:
            phase = state.submitted.config.phase(number)
            unmet = [in_words(event, phase.kind) for event in stopped]
            return UserDecision(phase.name, held(phase.name, unmet))
    return None


def held(name: str, unmet: Sequence[str]) -> str:
    """Return a sentence: a gate holds the pipeline because of these unmet figures."""
    return f"Phase {name} has ended, and its gate holds the pipeline: {'; '.join(unmet)}."


def told(decided: GateDecided) -> str:
    """Return a verdict's figure and limit as text, in the form that reasons of failure record."""
    gate, figure = decided.gate, decided.figure
    most = gate.at_least is None
    limit = f"at most {gate.at_most:g}" if most else f"at least {gate.at_least:g}"
    if figure is None:
        return f"{gate.metric} was not measured, and must be {limit}"
    between = "" if figure.low is None else f" ({figure.low:.4g} to {figure.high:.4g})"
    return f"{gate.metric} is {figure.value:.4g}{between}, and must be {limit}"


def in_words(decided: GateDecided, kind: str) -> str:
    """Return a verdict's figure and limit as text for people, with units; `kind` is the phase's."""
    gate, figure = decided.gate, decided.figure
    metric = figure_metric(plan.giver(kind, gate.metric), gate.metric)
    bound = gate.at_most if gate.at_least is None else gate.at_least
    assert bound is not None
    exact = re.sub(r"\.0+\b|(\.\d*?[1-9])0+\b", r"\1", measured(bound, metric.unit))
    limit = f"at {'most' if gate.at_least is None else 'least'} {exact}"
    if figure is None:
        return f"{metric.name} was not measured, and must be {limit}"
    value = measured(figure.value, metric.unit, figure.low, figure.high)
    return f"{metric.name} is {value}, and must be {limit}"
