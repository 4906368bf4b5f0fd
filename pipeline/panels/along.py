"""Panels of a pipeline's phases: quality and size of the models along them, and the strip. Pure.

Quality: a phase without a measurement has no point, except the phase before the first measured one:
its point is the best model that the measured phase was given, and so the beginning of the line. Bits
per byte are those of the measurement of a phase's model, on the items that no phase chose by.
`retention` is bits per byte of the best input over those of the model on the same documents, so both
together give the best input's; bytes and `size` likewise give the largest input's. Without bytes there
are the parameters that the runs record of the models.

The strip has each phase's standing, its gates in four words, and its figure. The panel of gates has
each figure beside its limit, and a sentence with what matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from agent_forge.pipeline import decide, ladder, plan
from agent_forge.pipeline.config import GateConfig
from agent_forge.pipeline.events import GateDecided, PipelineState
from agent_forge.pipeline.ladder import BITS, BYTES
from agent_forge.runs import kinds
from agent_forge.runs.event_types import Figure
from agent_forge.runs.kinds.decide import pending
from agent_forge.runs.kinds.view import outlook
from agent_forge.runs.kinds.wording import figure_metric
from agent_forge.runs.panels.panels import Gate, Gates, Lines, Series
from agent_forge.runs.panels.shapes import Axis, Metric
from agent_forge.runs.panels.stages import Measured, Stage, Standing, Strip
from agent_forge.runs.record.lineage import Child

RETENTION, SIZE = "retention", "size"
BEGINNING = "beginning"
#: Bytes stand on a logarithmic axis if the largest are at least this many times the smallest.
FAR = 10


def along(state: PipelineState, children: Sequence[Child]) -> list[Lines]:
    """Return up to two `Lines`, of quality and of size, that have a point; `children` are the runs."""
    panels = [_quality(state), _bytes(state) or _parameters(state, children)]
    return [panel for panel in panels if panel is not None]


def _axis(state: PipelineState) -> Axis:
    """Return the axis of phases, labelled by their names; place 0 is the beginning."""
    return Axis(name="phase", whole=True, names=(BEGINNING, *map(state.named, state.numbers)))


def _quality(state: PipelineState) -> Lines | None:
    return _pair(
        state,
        Lines(
            name="quality",
            title="Quality along the way",
            says="Bits per byte of the measured models, on items that no phase chose by; bands are "
            f"95 % intervals.{_alone(state)}",
            x=_axis(state),
            y=Axis(name="bits per byte", better="down"),
            series=(),
        ),
        BITS,
        lambda bits, retention: bits * retention,
        (RETENTION, "best of its inputs"),
    )


def _bytes(state: PipelineState) -> Lines | None:
    return _pair(
        state,
        Lines(
            name="bytes",
            title="Bytes along the way",
            says="Bytes of the measured models' weights, or of the whole file of a compressed model; "
            "no point: not measured.",
            x=_axis(state),
            y=Axis(name="bytes", unit="B", better="down", whole=True),
            series=(),
        ),
        BYTES,
        lambda model_bytes, size: model_bytes / size,
        (SIZE, "largest of its inputs"),
    )


def _pair(
    state: PipelineState,
    panel: Lines,
    name: str,
    input_of: Callable[[float, float], float],
    ratio: tuple[str, str],
) -> Lines | None:
    """Return the panel filled with a figure of each phase's model and inputs; None without any.

    `ratio`: the figure that says the input's from the model's own, by `input_of`, and the input's name.
    None if no phase has the figure.
    """
    phases = tuple(state.numbers)
    figures = [_figures(state, number) for number in phases]
    own_figures = [phase_figures.get(name) for phase_figures in figures]
    if not any(own_figures):
        return None
    inputs = tuple(
        input_of(figure.value, phase_figures[ratio[0]].value)
        if figure and ratio[0] in phase_figures
        else None
        for figure, phase_figures in zip(own_figures, figures, strict=True)
    )
    banded = any(figure.low is not None for figure in own_figures if figure)
    first = next(number for number, figure in zip(phases, own_figures, strict=True) if figure)
    begun = {first - 1: inputs[first - 1]} if inputs[first - 1] else {}
    places = tuple(sorted({*begun, *phases}))
    figures_by_phase = {
        number: figure for number, figure in zip(phases, own_figures, strict=True) if figure
    }
    values = {**begun, **{number: figure.value for number, figure in figures_by_phase.items()}}
    result = Series(
        name="result of the phase",
        x=places,
        y=tuple(values.get(place) for place in places),
        low=tuple(figures_by_phase[p].low if p in figures_by_phase else None for p in places)
        if banded
        else None,
        high=tuple(figures_by_phase[p].high if p in figures_by_phase else None for p in places)
        if banded
        else None,
    )
    before = Series(name=ratio[1], role="reference", x=phases, y=inputs)
    series = (result, before) if any(value is not None for value in inputs) else (result,)
    sizes = [value for line in series for value in line.y if value]
    far = panel.y.name == BYTES and max(sizes) >= FAR * min(sizes)
    axis = panel.y.model_copy(update={"log": far})
    return panel.model_copy(update={"series": series, "y": axis})


def _alone(state: PipelineState) -> str:
    """Return a sentence that names phases measured by their own runs only; empty if there are none."""
    names = ", ".join(phase.name for phase in ladder.unmeasured(state))
    return f" {names}: measured by the phase's own run, on its own items." if names else ""


def _figures(state: PipelineState, number: int) -> dict[str, Figure]:
    """Return name → figure of a phase; quality is that of its measurement, if it has one."""
    measured, figures = state.measured_phase(number), state.figures(number)
    figures.pop(RETENTION, None)  # of a phase's own run it may be over another model
    quality = measured.figures if measured else {}
    return figures | {n: quality[n] for n in (BITS, RETENTION) if n in quality}


def _parameters(state: PipelineState, children: Sequence[Child]) -> Lines | None:
    """Return the panel of parameters of each phase's largest and smallest model; None without any."""
    sizes = {number: list(_sizes(state, children, number)) for number in state.numbers}
    if not any(sizes.values()):
        return None
    largest = tuple(max(numbers, default=None) for numbers in sizes.values())
    smallest = tuple(min(numbers, default=None) for numbers in sizes.values())
    series = [Series(name="largest model", x=tuple(sizes), y=largest)]
    if smallest != largest:
        series.append(Series(name="smallest model", x=tuple(sizes), y=smallest))
    return Lines(
        name="parameters",
        title="Parameters along the way",
        says="Parameters of the models, as the runs of the phases record them.",
        x=_axis(state),
        y=Axis(name="parameters", whole=True),
        series=tuple(series),
    )


def _sizes(state: PipelineState, children: Sequence[Child], number: int) -> Iterator[int]:
    """Yield the numbers of parameters of a phase's models, if its run records them."""
    ended = state.ended_phase(number)
    states = [child.state for child in children if ended and child.run == ended.child]
    for child in states if ended else ():
        if child.completed is not None:
            rows = kinds.of(child.kind).models.registered(child.completed, child)
            digests = {model.digest for model in ended.models.values()} if ended else set()
            yield from (row["parameters"] for row in rows if row["digest"] in digests)


#: Verdicts of gates, the one that is told first if a phase has several.
TELLING = ("stop", "pass unchanged", "pass")


def strip(state: PipelineState, children: Sequence[Child] | None) -> Strip:
    """Return the `Strip` panel of stages; `children` are the pipeline's runs now, None if unknown."""
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
    """Return a `Stage` for each phase, in order."""
    return [_stage(state, number, children) for number in state.numbers]


def names(state: PipelineState, children: Sequence[Child]) -> dict[str, str]:
    """Return run → its name within the pipeline: "2 merge", "2 merge, measurement"."""
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
    """Yield a phase's runs: the newest, its measurement, then those that were given up."""
    runs = [c for c in children if c.task.split("/")[1] == str(number)]
    newest = {plan.child_name(state, number), plan.child_name(state, number, "measure")}
    first = [child for child in runs if child.run in newest]
    yield from sorted(first, key=lambda child: child.task.startswith("measure/"))
    yield from (child for child in runs if child.run not in newest)


def _standing(
    state: PipelineState, number: int, runs: Sequence[Child]
) -> tuple[Standing, Child | None]:
    """Return (state of a phase in words, its live run or measurement, None without one)."""
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
    """Return the numbers of phases whose run or measurement is an open task."""
    tasks = (key.split("/") for key in pending(state))
    return {int(parts[1]) for parts in tasks if parts[0] in ("phase", "measure")}


def _gate(state: PipelineState, number: int) -> str:
    """Return the state of a phase's gates in at most four words; empty without gates."""
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
    """Return the verdict to show: the first that stops, or else that passes the input on."""
    return min(decided, key=lambda decision: TELLING.index(decision.verdict))


def _figure(state: PipelineState, number: int) -> Measured | None:
    """Return as `Measured` the figure of the verdict to show, or else the phase's first; or None."""
    if decided := state.gates.get(number, ()):
        decision = _telling(decided)
        if decision.figure is not None:
            shown = metric(state, number, decision.gate.metric, decision.gate)
            return _measured(shown, decision.figure)
    for name, figure in state.figures(number).items():
        return _measured(metric(state, number, name, None), figure)
    return None


def _measured(metric: Metric, figure: Figure) -> Measured:
    return Measured(metric=metric, value=figure.value, low=figure.low, high=figure.high)


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
