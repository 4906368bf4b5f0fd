"""Gates of a pipeline's phases: each figure beside its limit, and in a sentence what matters. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pipeline import decide, plan
from pipeline.config import GateConfig
from pipeline.events import PipelineState
from runs.kinds.outcome import figure_metric
from runs.panels.panels import Gate, Gates
from runs.panels.shapes import Metric


def gates(state: PipelineState) -> Gates | None:
    """Return the gates of all phases, grouped by phase; None if there are none."""
    found = [gate for gate, _ in _every(state)]
    if not found:
        return None
    return Gates(name="gates", title="Gates", says=_says(found), gates=tuple(found))


def plain(state: PipelineState) -> list[dict[str, Any]]:
    """Return the gates as the report of a result's folder has them: by the names of their figures."""
    found = []
    for gate, config in _every(state):
        named = Metric(name=config.metric, better=gate.metric.better)
        told = gate.model_copy(update={"metric": named})
        found.append(told.model_dump(mode="json", exclude={"group"}))
    return found


def _every(state: PipelineState) -> Iterator[tuple[Gate, GateConfig]]:
    for number in state.numbers:
        yield from _of_phase(state, number)


def metric(state: PipelineState, number: int, figure: str, gate: GateConfig | None) -> Metric:
    """Return a phase's figure in words, with its unit, and which end of it is better for its gate."""
    better = None if gate is None else "up" if gate.at_least is not None else "down"
    return figure_metric(
        plan.giver(state.submitted.config.phase(number).kind, figure), figure, better
    )


def _of_phase(state: PipelineState, number: int) -> Iterator[tuple[Gate, GateConfig]]:
    """Yield a phase's gates, those not reached yet as open, each with its settings."""
    phase, decided = state.submitted.config.phase(number), state.gates.get(number, ())
    override, wanted = state.overridden.get(number), plan.gates(state, number)
    metrics = [gate.metric for gate in wanted]
    for place, gate in enumerate(wanted):
        told = decided[place] if place < len(decided) else None
        figure = told.figure if told else None
        verdict = told.verdict if told else "open"
        why = decide.in_words(told, phase.kind) if told and verdict != "pass" else None
        stopped = verdict == "stop" and override is not None
        again = "" if metrics.count(gate.metric) == 1 else f" {place + 1}"
        yield (
            Gate(
                name=f"{phase.name} {gate.metric}{again}",
                group=f"{number} {phase.name}",
                metric=metric(state, number, gate.metric, gate),
                value=figure.value if figure else None,
                baseline=told.baseline if told else None,
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


def _says(found: list[Gate]) -> str:
    """Return which gates are not met, which one that passed is nearest to its limit, what is ahead."""
    passed = [gate for gate in found if gate.verdict == "pass"]
    missed = [gate for gate in found if gate.verdict not in ("pass", "open")]
    ahead = len(found) - len(passed) - len(missed)
    told = [f"{len(passed)} of {len(found)} passed"] if passed or missed else []
    if missed:
        told.append("not met: " + ", ".join(f"{_place(gate)} ({gate.verdict})" for gate in missed))
    nearest = min(passed, key=_margin, default=None)
    if nearest and (times := _margin(nearest)) < math.inf:
        far = f"{times:.1f} times as far from it as from the end of its 95 % interval"
        told.append(f"nearest to its limit: {_place(nearest)}, {far}")
    if ahead:
        told.append(f"{ahead} not reached yet")
    if any(gate.baseline is not None for gate in found):
        what = "A figure with a baseline is measured on documents that no phase may choose by"
        told[-1] += f". {what}, any other by the phase's own run"
    return f"{'; '.join(told)}."


def _place(gate: Gate) -> str:
    """Return a gate by its phase and its figure."""
    return f"{gate.group.partition(' ')[2]}: {gate.metric.name}"


def _margin(gate: Gate) -> float:
    """Return how far a figure is from its limit, in distances to the worse end of its interval."""
    worse = gate.low if gate.metric.better == "up" else gate.high
    if gate.value is None or gate.limit is None or worse is None or worse == gate.value:
        return math.inf
    return abs((gate.value - gate.limit) / (gate.value - worse))
