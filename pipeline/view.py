"""Views of a pipeline: its page, its row in the run list, its rows for a tracker. Pure.

In the run list a pipeline has its phases as its own events tell their standing; `runs.lists.stages`
has the fields. A phase's entry equals the one in the page's strip (`pipeline.panels.along`), but for
what only the log of the phase's run tells. A tracker gets a row for each phase, with its figures and
verdicts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from typing_extensions import override

from agent_forge.events import Envelope, Event
from agent_forge.pipeline import decide, ladder, plan
from agent_forge.pipeline import report as document
from agent_forge.pipeline.config import PipelineConfig
from agent_forge.pipeline.events import (
    Forked,
    GateDecided,
    GateOverridden,
    PassedThrough,
    PhaseEnded,
    PhaseFailed,
    PhaseMeasured,
    PipelineState,
    Submitted,
)
from agent_forge.pipeline.ladder import BITS, BYTES
from agent_forge.pipeline.panels import along, lineage
from agent_forge.runs import kinds
from agent_forge.runs.event_types import Figure
from agent_forge.runs.kinds import default_panels
from agent_forge.runs.kinds.tracking import TEXT, Parts, TrackedName, Tracking
from agent_forge.runs.kinds.view import Outlook, Scores, UnderWay, View
from agent_forge.runs.kinds.wording import figure_text
from agent_forge.runs.panels.head import Fact, Head, Result, listed
from agent_forge.runs.panels.panels import Column, Metric, Panel, Units
from agent_forge.runs.panels.stages import Strip, timeline
from agent_forge.runs.record.lineage import Child
from agent_forge.studies.study_view import Data, Plain
from agent_forge.studies.training_panels import BITS as QUALITY

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


PHASES = tuple(
    Column(name=name, type="run" if name == "run" else "text")
    for name in ("phase", "kind", "state", "run", "models", "figures")
)


class PipelineView(View[PipelineState]):
    """The part of a pipeline that is shown."""

    @override
    def names(self, state: PipelineState) -> dict[str, str]:
        """Return recipe id → PHASE:ROLE, and "phase 2: METRIC" → the gate in words."""
        names = {
            model.recipe_id: f"{phase}:{role}" if role else phase
            for phase, models in plan.by_phase(state).items()
            for role, (_, model) in models.items()
        }
        for number, decided in state.gates.items():
            for gate in (event.gate for event in decided):
                words = along.metric(state, number, gate.metric, gate).name
                names[_gate_id(number, gate.metric)] = f"phase {state.named(number)}: {words}"
        return names

    @override
    def summary_line(self, type_: str, data: Data, names: Mapping[str, str]) -> str | None:
        match type_:
            case "submitted":
                return " → ".join(phase["name"] for phase in data["config"]["phases"])
            case "phase_ended":
                reused = f"run {data['child']} had ended already"
                return f"phase {data['name']}: {reused if data.get('reused') else 'completed'}"
            case "phase_measured":
                kind, figures = kinds.of(plan.MEASURE), data["figures"].items()
                text = ", ".join(figure_text(kind, n, Figure(value=f["value"])) for n, f in figures)
                return f"phase {data['name']}: {text}"
            case "phase_failed":
                return f"phase {data['name']}: {data['status']}: {data['reason']}"
            case "gate_decided":
                decided = GateDecided.model_validate(data)
                gate = _gate_id(decided.phase, decided.gate.metric)
                return f"{names.get(gate, gate)}: {decided.verdict}"
            case "passed_through":
                return f"phase {data['phase']}: {data['reference']} goes on unchanged"
            case "gate_overridden":
                return f"phase {data['phase']}: {data['reason']}"
        return None

    @override
    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        first, _, rest = key.partition("/")
        if first in ("phase", "measure"):
            does = "run" if first == "phase" else "measure the model of"
            return f"{does} phase {rest.partition('/')[0]}"
        return "check the phases" if key == "start" else ""

    @override
    def row(self, entry: Plain, event: Event) -> None:
        note(entry, event)

    @override
    def progress(self, state: PipelineState) -> tuple[int, int | None]:
        ended = sum(state.ended_phase(number) is not None for number in state.numbers)
        return ended, len(state.numbers) or None

    @override
    def outlook(self, state: PipelineState, rehearsal: object, under_way: UnderWay = ()) -> Outlook:
        """Return the `Outlook` by phases; before the pipeline has completed, without the share done."""
        base_outlook = super().outlook(state, rehearsal, under_way)
        return base_outlook if state.completed else replace(base_outlook, inside=None)

    @override
    def unit_of(self, row: Envelope) -> int | None:
        if row.type != PhaseEnded.type:
            return None
        event = PipelineState.registry.load(row)
        assert isinstance(event, PhaseEnded)
        return event.phase

    @override
    def head(self, state: PipelineState) -> Head:
        """Return the `Head`: bits per byte of the newest measured model that goes on, and the gain."""
        facts = [Fact(name="result", value=name)] if (name := _goes_on(state)) else []
        base_head = default_panels.head(self.kind, state, _result(state), facts)
        return base_head.model_copy(update={"verdict": ladder.gain(state)})

    @override
    def yardstick(self, state: PipelineState) -> dict[str, object]:
        """Return {words for a difference: (paths of test items, lineages of phases that give them)}."""
        places, config = state.submitted.test, state.submitted.config
        phases = [config.items_of(place) for place in places] or [1]
        ended = [state.ended_phase(number) for number in phases if number]
        lineages = [phase.lineage for phase in ended if phase]
        return {"their items are not known to be the same": (places, lineages)}

    @override
    def panels(self, state: PipelineState, curve: Scores = ()) -> Sequence[Panel]:
        return panels(state, None)

    @override
    def fields(self, state: PipelineState) -> dict[str, object]:
        return {"phases": _phases(state), "gates": report(state)["gates"]}

    @override
    def report(self, state: PipelineState, rows: Sequence[Envelope]) -> dict[str, object]:
        return report(state)

    @override
    def markdown(self, state: PipelineState, rows: Sequence[Envelope], curve: Scores = ()) -> str:
        """Return the report as Markdown, without what only the phases' own logs say."""
        return document.markdown(state, rows, {})


class PipelineTracking(Tracking[PipelineState]):
    """Tracker rows of pipelines."""

    further = NAMES

    @override
    def parts(self, state: PipelineState) -> Parts:
        phases = state.submitted.config.phases if state.submitted else ()
        names = {plan.MEASURE, *(phase.kind for phase in phases)}
        had = {figure for number in range(1, len(phases) + 1) for figure in state.figures(number)}
        figures = had | {figure for name in names for figure in kinds.of(name).figures_of}
        return {"figure": figures}

    @override
    def rows(self, state: PipelineState, after: int) -> list[tuple[int, dict[str, object]]]:
        """Return (number, row) of phases above `after`, up to the first not ended or not decided."""
        phases = state.submitted.config.phases if state.submitted else ()
        pairs = []
        for number, phase in enumerate(phases, start=1):
            gates = state.gates.get(number, ())
            undecided = not gates and plan.gates(state, number)
            if state.ended_phase(number) is None or undecided:
                break
            missed = [gate.verdict for gate in gates if gate.verdict != "pass"]
            row: dict[str, object] = {
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


def panels(state: PipelineState, runs: Sequence[Child] | None) -> Sequence[Panel]:
    """Return the panels that there are: ladder, strip, quality, size, gates, times, phases, family."""
    children, strip = runs or (), along.strip(state, runs)
    panels: list[Panel] = [*_ladder(state), strip, *along.along(state, children)]
    if (verdicts := along.gates(state)) is not None:
        panels.append(verdicts)
    begun = [child for child in children if not child.reused]
    if (times := timeline(begun, along.names(state, begun))) is not None:
        panels.append(times)
    panels.append(_table(state, strip, runs is not None))
    family = lineage.lineage(state, children)
    return panels if family is None else [*panels, family]


def _table(state: PipelineState, strip: Strip, has_runs: bool) -> Units:
    """Return the `Units` panel of phases, models and figures; `has_runs`: their runs are known."""
    rows = []
    for stage, row in zip(strip.stages, _phases(state), strict=True):
        run = next(iter(stage.runs), None) if has_runs else row["run"]
        cells = {**row, "state": stage.state, "run": run}
        rows.append(tuple(cells.values()))
    return Units(
        name="phases",
        title="Phases",
        says="Each with its models and all of its figures.",
        unit="phase",
        columns=PHASES,
        rows=tuple(rows),
    )


def _gate_id(number: int, metric: str) -> str:
    """Return a gate's key in the dict of `PipelineView.names`: "phase 2: METRIC"."""
    return f"phase {number}: {metric}"


def report(state: PipelineState) -> dict[str, object]:
    """Return a dict for JSON of a pipeline: run, lineage digest, phases, gates, models."""
    return {
        "run": state.run,
        "lineage_digest": state.completed.lineage_digest if state.completed else None,
        "phases": _phases(state),
        "gates": along.plain(state),
        "models": {
            role: {"run": run, **model.model_dump()}
            for role, (run, model) in plan.outgoing(state, len(state.numbers)).items()
        },
    }


def _result(state: PipelineState) -> Result | None:
    """Return a `Result`: bits per byte of the newest measured model that goes on; None without one."""
    rung = ladder.newest(state)
    if rung is None or rung.bits is None:
        return None
    ended, figure = state.ended_phase(rung.number), rung.bits
    assert ended
    [(role, model)] = ended.models.items()
    return Result(
        name=f"{ended.name}:{role}, after phase {rung.number}",
        model=model.recipe_id,
        called=f"{ended.name}:{role}",
        metric=Metric(name="bits per byte", better="down"),
        value=figure.value,
        low=figure.low,
        high=figure.high,
        on="test slice",
        n=figure.n,
        items="documents",
    )


def _goes_on(state: PipelineState) -> str:
    """Return PHASE:ROLE of the model that a completed pipeline gives; empty if it gives not one.

    The last phases are named if they passed it on unchanged.
    """
    models = list(state.completed.models.values()) if state.completed else []
    phases = (state.ended_phase(number) for number in state.numbers)
    outputs = ((phase.name, *pair) for phase in phases if phase for pair in phase.models.items())
    model = next((f"{name}:{role}" for name, role, model in outputs if models == [model]), "")
    idle = [*takewhile(state.passed.__contains__, reversed(state.numbers))]
    names = ", ".join(state.named(number) for number in reversed(idle))
    return f"{model}, passed on unchanged by {names}" if model and idle else model


def _ladder(state: PipelineState) -> list[Panel]:
    """Return [the `Units` panel of the measured models, as in the report]; [] if none was measured."""
    table = Units(
        name="ladder",
        title="Before and after each phase",
        says=ladder.SAYS,
        unit="model",
        columns=tuple(Column(name=name, type="text") for name in ladder.COLUMNS),
        rows=tuple(rung.cells() for rung in ladder.ladder(state)),
    )
    return [table] if table.rows else []


def _figures(state: PipelineState, number: int) -> str:
    """Return a phase's figures as one text, in the words of its gates, with units; '' without any."""
    kind, values = state.submitted.config.phase(number).kind, state.figures(number).items()
    return ", ".join(figure_text(plan.giver(kind, n), n, Figure(value=f.value)) for n, f in values)


def _phases(state: PipelineState) -> list[Plain]:
    """Return a dict of texts for each phase: phase, kind, state, run, models, figures."""
    rows = []
    for number, phase in enumerate(state.submitted.config.phases if state.submitted else (), 1):
        ended, troubles = state.ended_phase(number), state.troubles(number)
        word = "ended" if ended else troubles[-1].status if troubles else "open"
        if ended and ended.reused:
            word = "reused"
        if state.troubles(number, "measure") and not state.measured_phase(number):
            word = "not measured"
        if number in state.passed:
            word = "passed unchanged"
        models = ended.models if ended else {}
        rows.append(
            {
                "phase": phase.name,
                "kind": phase.kind,
                "state": word,
                "run": ended.child if ended else plan.child_name(state, number),
                "models": ", ".join(f"{role} {m.digest[:12]}" for role, m in models.items()),
                "figures": _figures(state, number),
            }
        )
    return rows


#: Figures of the newest model that goes on, and the columns that they are noted in.
FIGURES = {BITS: "quality", BYTES: "bytes"}


def note(entry: Plain, event: Event) -> None:
    """Update a pipeline's row of the run list with an event, in place."""
    if isinstance(event, Submitted):
        entry["stages"] = json.dumps(_all_waiting(event.config))
        return
    if isinstance(event, PhaseEnded):
        entry["done"] = event.phase
        models = list(event.models.values())
        entry["result"] = models[0].recipe_id if len(models) == 1 else None
    if entry["stages"] is None or not (isinstance(event, Forked) or hasattr(event, "phase")):
        return
    stages: list[Plain] = json.loads(entry["stages"])
    if isinstance(event, Forked):
        stages = _forked(stages, event.config)
    else:
        _note_phase(stages, event)
    for stage in stages:
        record = stage["seen"]
        stage |= {"state": _state(record), "gate": record["stopped"]}
        stage["says"] = decide.held(stage["name"], record["unmet"]) if record["stopped"] else ""
    entry["stages"] = json.dumps(stages)
    _note_figures(entry, stages)


def _note_phase(stages: list[Plain], event: Any) -> None:
    """Update an event's phase in `stages`, in place; do nothing if its number is out of range."""
    if not 1 <= event.phase <= len(stages):
        return
    stage = stages[event.phase - 1]
    record = stage["seen"]
    match event:
        case PhaseEnded():
            record |= {"ended": "reused" if event.reused else "ended", "trouble": ""}
            record["awaited"] = record["measures"] and len(event.models) == 1
            record["figures"] = {BYTES: event.figures[BYTES].value} if BYTES in event.figures else {}
        case PhaseMeasured():  # bytes that the phase's own run gives are those of its file, and stay
            measured = {n: event.figures[n].value for n in FIGURES if n in event.figures}
            record |= {"measured": True, "awaited": False, "figures": {**measured, **record["figures"]}}
        case PhaseFailed():
            word = "cancelled" if event.status == "cancelled" else "failed"
            record |= {"trouble": word, "measuring": bool(record["ended"])}
        case PassedThrough():
            record |= {"passed": True, "figures": _passed(stages, event.reference)}
        case GateOverridden():
            record["overridden"] = True
        case GateDecided():
            record["awaited"] = False
            if event.verdict == "stop":
                record["stopped"] = record["stopped"] or event.gate.metric.replace("_", " ")
                record["unmet"].append(decide.in_words(event, stage["what"]))
    if isinstance(event, PhaseEnded | PhaseFailed) and not record["measuring"]:
        stage["run"] = event.child if event.child_version else stage["run"]  # 0: not submitted


def _all_waiting(config: PipelineConfig) -> list[Plain]:
    """Return a dict for each phase of a pipeline, as before any event about it."""
    return [_waiting(config, number) for number in range(1, len(config.phases) + 1)]


def _waiting(config: PipelineConfig, number: int) -> dict[str, object]:
    """Return the dict of a phase, as before any event about it."""
    phase = config.phase(number)
    record = {
        "ended": "",
        #: If it makes one model, its gates need the measurement of that.
        "measures": plan.measures(config, number, 1),
        "awaited": False,
        #: The trouble is that of the measurement.
        "measuring": False,
        "measured": False,
        "trouble": "",
        "stopped": "",
        "unmet": [],
        "passed": False,
        "overridden": False,
        "figures": {},
    }
    shown = {"name": phase.name, "what": phase.kind, "state": "waiting", "gate": "", "run": None}
    shown["says"] = ""
    return {**shown, "seen": record}


def _forked(stages: list[Plain], config: PipelineConfig) -> list[Plain]:
    """Return the dicts of a fork's phases: those that have ended, others as if they had not begun."""
    ended = [
        {**stage, "seen": {**stage["seen"], "trouble": "", "measuring": False}}
        for stage in stages[: len(config.phases)]
        if stage["seen"]["ended"]
    ]
    return [*ended, *_all_waiting(config)[len(ended) :]]


def _state(record: Plain) -> str:
    """Return a phase's state as text, "gate stopped" say, in the order of `pipeline.panels.along`."""
    if record["overridden"]:
        return "overridden"
    if record["stopped"]:
        return "gate stopped"
    if record["passed"]:
        return "passed unchanged"
    if record["trouble"] and not record["measured"]:
        return record["trouble"]
    return "measuring" if record["awaited"] else record["ended"] or "waiting"


def _note_figures(entry: Plain, stages: list[Plain]) -> None:
    """Note quality and bytes of the newest measured model that goes on: `pipeline.ladder.newest`."""
    ended = [stage["seen"] for stage in reversed(stages) if stage["seen"]["ended"]]
    settled = (record["figures"] for record in ended if record["passed"] or BITS in record["figures"])
    figures = next(settled, {})
    figures = figures if BITS in figures else {}
    for name, column in FIGURES.items():
        value = figures.get(name)
        if value is not None and not math.isfinite(value):
            value = None
        entry[column] = int(value) if column == "bytes" and value is not None else value
    measured = [s["seen"]["figures"].get("bits_per_byte") for s in stages if s["seen"]["measured"]]
    entry |= listed(QUALITY, next((bits for bits in reversed(measured) if bits), None), "test slice")


def _passed(stages: list[Plain], reference: str) -> dict[str, object]:
    """Return {figure: value} of a model that passes unchanged; {} if it is of no phase."""
    name = reference.partition(":")[0]
    return next((stage["seen"]["figures"] for stage in stages if stage["name"] == name), {})
