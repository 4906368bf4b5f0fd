"""Sections of the phases in a pipeline's report. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline import decide, plan
from pipeline.config import PhaseConfig
from pipeline.events import GateDecided, PipelineState
from pipeline.reports.children import Child
from pipeline.reports.words import code, count, plain, table
from runs import kinds
from runs.event_types import MadeModel
from runs.kinds.outcome import figure_metric, figure_text
from runs.panels.head import measured
from runs.system.durations import duration

#: Verdict of a gate → how the report says it.
_VERDICTS = {"pass": "passed", "pass unchanged": "input passes on unchanged", "stop": "stops"}


def section(
    state: PipelineState,
    children: Mapping[str, Child],
    number: int,
    phase: PhaseConfig,
) -> list[str]:
    """Return the section of a phase."""
    kind = kinds.of(phase.kind)
    what = f"{kind.line[:1].upper()}{kind.line[1:]} (kind {code(phase.kind)})."
    lines = [
        f"## {number}. {phase.name}",
        "",
        f"**{stands(state, number).capitalize()}.** {what}",
        "",
    ]
    lines += [*_wanted(phase), *_course(state, number, children)]
    ended = state.ended_phase(number)
    if ended is not None:
        child = children.get(ended.child)
        lines += [*_models(ended.models, child), *_figures(state, number)]
        lines += _own_words(child) if child else []
    return [*lines, *_gates(state, number)]


def _wanted(phase: PhaseConfig) -> list[str]:
    """Return what the phase was asked for, as the pipeline's file has it."""
    lines = [
        f"- {plain(role)}: {', '.join(map(code, names))}" for role, names in phase.models.items()
    ]
    if phase.data:
        lines.append(f"- data: {', '.join(map(code, phase.data))}")
    if phase.settings:
        settings = ", ".join(code(f"{name} = {value}") for name, value in phase.settings.items())
        lines.append(f"- settings: {settings}")
    return [*lines, ""] if lines else []


def _course(state: PipelineState, number: int, children: Mapping[str, Child]) -> list[str]:
    """Return the phase's runs, and what went wrong on the way."""
    lines = [
        f"Run {code(trouble.child)} {trouble.status}: {plain(trouble.reason)}."
        for what in ("phase", "measure")
        for trouble in state.troubles(number, what)
    ]
    ended, measured = state.ended_phase(number), state.measured_phase(number)
    if ended is None:
        name = plan.child_name(state, number)
        if name in children and not children[name].state.ended:
            lines.append(_under_way(name, children[name]))
    elif ended.reused:
        lines.append(
            f"Run {code(ended.child)} had ended{_took(children.get(ended.child))}, with the same "
            "settings, inputs, profile and version: the phase takes its result, and began no run."
        )
    else:
        lines.append(f"Run {code(ended.child)} completed{_took(children.get(ended.child))}.")
    if measured is not None:
        how = "had measured an equal model" if measured.reused else "measured its model"
        lines.append(f"Run {code(measured.child)} {how}{_took(children.get(measured.child))}.")
    return [" ".join(lines), ""] if lines else []


def _took(child: Child | None) -> str:
    return "" if child is None else f" after {duration(child.state.spent.device)} of work"


def _under_way(name: str, child: Child) -> str:
    done, of = child.kind.progress(child.state)
    far = f"{done} of {count(of, child.kind.unit)}" if of else f"{count(done, child.kind.unit)}"
    return f"Run {code(name)} is {child.state.status}: {far} done."


def _models(models: Mapping[str, MadeModel], child: Child | None) -> list[str]:
    """Return the table of the phase's models."""
    if not models:
        return []
    parameters: dict[str, int] = {}
    if child is not None and child.state.completed:
        model_rows = child.kind.models(child.state.completed, child.state)
        parameters = {
            row["digest"]: row["parameters"] for row in model_rows if row.get("parameters")
        }
    rows = [
        (
            plain(role),
            f"{parameters[m.digest]:,}" if m.digest in parameters else "–",
            f"`{m.digest[:16]}`",
        )
        for role, m in models.items()
    ]
    return ["Models:", "", *table(("model", "parameters", "weights (digest)"), rows), ""]


def _figures(state: PipelineState, number: int) -> list[str]:
    """Return the phase's figures, each with what it is."""
    lines = []
    for name, figure in state.figures(number).items():
        kind = plan.giver(state.submitted.config.phase(number).kind, name)
        words = kind.figures_of.get(name, "not known here").rpartition(": ")[2]
        on = f" on {count(figure.n, 'item')}" if figure.n is not None else ""
        lines.append(f"- {figure_text(kind, name, figure)}{on}: {words} ({code(name)})")
    return ["Figures, with 95 % intervals where they are known:", "", *lines, ""] if lines else []


def _own_words(child: Child) -> list[str]:
    """Return what the phase's run says of itself."""
    lines = child.kind.summary(child.state, child.rows)
    return [*lines, ""] if lines else []


def _gates(state: PipelineState, number: int) -> list[str]:
    """Return the verdicts of the phase's gates, and who went on behind one."""
    kind = state.submitted.config.phase(number).kind
    lines = [f"- {_gate(decided, kind)}" for decided in state.gates.get(number, ())]
    if (passed := state.passed.get(number)) is not None:
        lines.append(f"- So {code(passed.reference)} goes on in the place of the phase's model.")
    if (override := state.overridden.get(number)) is not None:
        actor = state.asked_by.get(override, "a user")
        lines.append(f"- {plain(actor)} let the pipeline go on: “{plain(override.reason)}”")
    return ["Gates:", "", *lines, ""] if lines else []


def _gate(decided: GateDecided, kind: str) -> str:
    """Return a gate's verdict in words, with the figure of the phase's input if that is known."""
    text, before, figure = decide.in_words(decided, kind), decided.baseline, decided.gate.metric
    unit = figure_metric(plan.giver(kind, figure), figure).unit
    beside = "" if before is None else f" (its input's is {measured(before, unit)})"
    return f"{plain(text)}{beside}: **{_VERDICTS[decided.verdict]}**"


def stands(state: PipelineState, number: int) -> str:
    """Return how a phase stands, in a few words."""
    ended, troubles = state.ended_phase(number), state.troubles(number)
    if ended is None:
        before = number == 1 or state.ended_phase(number - 1) is not None
        if troubles and state.ended:
            return troubles[-1].status
        return "under way" if before and not state.ended and state.started else "not begun"
    words = ["reused" if ended.reused else "ended"]
    measured, tried = state.measured_phase(number), state.troubles(number, "measure")
    if tried and measured is None:
        words.append("not measured")
    if number in state.passed:
        words.append("passed unchanged")
    if number in state.overridden:
        words.append("overridden")
    elif any(gate.verdict == "stop" for gate in state.gates.get(number, ())):
        words.append("stopped")
    return ", ".join(words)
