"""Panel of a pipeline's gates: each figure beside its limit, and a sentence with what matters. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from agent_forge.pipeline import decide, plan
from agent_forge.pipeline.config import GateConfig
from agent_forge.pipeline.events import PipelineState
from agent_forge.runs.kinds.wording import figure_metric
from agent_forge.runs.panels.panels import Gate, Gates
from agent_forge.runs.panels.shapes import Metric


def gates(state: PipelineState) -> Gates | None:
    """Return the panel of all phases' gates, grouped by phase; None if there are none."""
    all_gates = [gate for gate, _ in _every(state)]
    if not all_gates:
        return None
    return Gates(name="gates", title="Gates", says=_says(all_gates), gates=tuple(all_gates))


def plain(state: PipelineState) -> list[dict[str, object]]:
    """Return the gates as JSON rows, as `pipeline.json` has them, by the names of their figures."""
    rows = []
    for gate, config in _every(state):
        named = Metric(name=config.metric, better=gate.metric.better)
        named_gate = gate.model_copy(update={"metric": named})
        rows.append(named_gate.model_dump(mode="json", exclude={"group"}))
    return rows


def _every(state: PipelineState) -> Iterator[tuple[Gate, GateConfig]]:
    for number in state.numbers:
        yield from _of_phase(state, number)


def metric(state: PipelineState, number: int, figure: str, gate: GateConfig | None) -> Metric:
    """Return the `Metric` of a phase's figure: name in words, unit, better end for its gate."""
    better = None if gate is None else "up" if gate.at_least is not None else "down"
    return figure_metric(plan.giver(state.submitted.config.phase(number).kind, figure), figure, better)


def _of_phase(state: PipelineState, number: int) -> Iterator[tuple[Gate, GateConfig]]:
    """Yield (gate, its settings) of a phase; gates that are not reached yet are "open"."""
    phase, decided = state.submitted.config.phase(number), state.gates.get(number, ())
    override, phase_gates = state.overridden.get(number), plan.gates(state, number)
    metrics = [gate.metric for gate in phase_gates]
    for place, gate in enumerate(phase_gates):
        decision = decided[place] if place < len(decided) else None
        figure = decision.figure if decision else None
        verdict = decision.verdict if decision else "open"
        why = decide.in_words(decision, phase.kind) if decision and verdict != "pass" else None
        stopped = verdict == "stop" and override is not None
        again = "" if metrics.count(gate.metric) == 1 else f" {place + 1}"
        yield (
            Gate(
                name=f"{phase.name} {gate.metric}{again}",
                group=f"{number} {phase.name}",
                metric=metric(state, number, gate.metric, gate),
                value=figure.value if figure else None,
                baseline=decision.baseline if decision else None,
                low=figure.low if figure else None,
                high=figure.high if figure else None,
                limit=gate.at_least if gate.at_least is not None else gate.at_most,
                verdict="overridden" if stopped else verdict,
                by=state.asked_by.get(override) if stopped and override else None,
                reason=override.reason if stopped and override else why,
                about=phase.name if verdict == "stop" and override is None else None,
            ),
            gate,
        )


def _says(all_gates: list[Gate]) -> str:
    """Return a sentence: gates not met, the passed one nearest to its limit, the number ahead."""
    passed = [gate for gate in all_gates if gate.verdict == "pass"]
    missed = [gate for gate in all_gates if gate.verdict not in ("pass", "open")]
    ahead = len(all_gates) - len(passed) - len(missed)
    parts = [f"{len(passed)} of {len(all_gates)} passed"] if passed or missed else []
    if missed:
        parts.append("not met: " + ", ".join(f"{_place(gate)} ({gate.verdict})" for gate in missed))
    nearest = min(passed, key=_margin, default=None)
    if nearest and (times := _margin(nearest)) < math.inf:
        far = f"{times:.1f} times as far from it as from the end of its 95 % interval"
        parts.append(f"nearest to its limit: {_place(nearest)}, {far}")
    if ahead:
        parts.append(f"{ahead} not reached yet")
    if any(gate.baseline is not None for gate in all_gates):
        what = "A figure with a baseline is measured on documents that no phase may choose by"
        parts[-1] += f". {what}, any other by the phase's own run"
    return f"{'; '.join(parts)}."


def _place(gate: Gate) -> str:
    """Return a gate as text, "PHASE: figure"."""
    return f"{gate.group.partition(' ')[2]}: {gate.metric.name}"


def _margin(gate: Gate) -> float:
    """Return a figure's distance to its limit over that to its interval's worse end; or infinity."""
    worse = gate.low if gate.metric.better == "up" else gate.high
    if gate.value is None or gate.limit is None or worse is None or worse == gate.value:
        return math.inf
    return abs((gate.value - gate.limit) / (gate.value - worse))
