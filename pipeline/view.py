"""Views of a pipeline: its phases, their gates, its models. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from events import Envelope, Event
from pipeline import decide, ladder, listing, origins, plan, tracked
from pipeline.events import GateDecided, PhaseEnded, PipelineState
from pipeline.panels import along, gates, lineage, stages
from pipeline.reports import document
from runs import kinds
from runs.event_types import Figure
from runs.kinds import default_panels
from runs.kinds.origin import Ancestor
from runs.kinds.outcome import figure_text
from runs.kinds.tracking import Parts
from runs.kinds.view import Outlook, UserDecision, View
from runs.panels.head import Fact, Head, Result
from runs.panels.panels import Column, Metric, Panel, Units
from runs.panels.stages import Stage, Strip
from runs.panels.timeline import timeline
from runs.record.journal import Child

PHASES = tuple(
    Column(name=name, type="run" if name == "run" else "text")
    for name in ("phase", "kind", "state", "run", "models", "figures")
)


class PipelineView(View[PipelineState]):
    """The part of a pipeline that is shown."""

    tracked_names = tracked.NAMES

    def names(self, state: PipelineState) -> dict[str, str]:
        """Return recipe id → PHASE:ROLE, and "phase 2: METRIC" → the gate in words."""
        names = {
            model.recipe_id: f"{phase}:{role}" if role else phase
            for phase, models in origins.by_phase(state).items()
            for role, (_, model) in models.items()
        }
        for number, decided in state.gates.items():
            for gate in (event.gate for event in decided):
                words = gates.metric(state, number, gate.metric, gate).name
                names[_gate_id(number, gate.metric)] = f"phase {state.named(number)}: {words}"
        return names

    def gist(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
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

    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        """Return a task's key in words; empty if there are none."""
        first, _, rest = key.partition("/")
        if first in ("phase", "measure"):
            does = "run" if first == "phase" else "measure the model of"
            return f"{does} phase {rest.partition('/')[0]}"
        return "check the phases" if key == "start" else ""

    def stage_of(self, state: PipelineState, key: str) -> str:
        """Return which phase a run is, or is the measurement of: "phase 8 of 9, mixed"."""
        work, number = key.split("/")[:2]
        name = state.named(int(number))
        measured = ", measurement" if work == "measure" else ""
        return f"phase {number} of {len(state.numbers)}, {name}{measured}"

    def row(self, entry: dict[str, Any], event: Event) -> None:
        """Note the phases in the run's row of the run list."""
        listing.note(entry, event)

    def ancestry(self, state: PipelineState, name: str) -> list[Ancestor]:
        """Return a model of the pipeline: the run of a phase, given by its digest, says the rest."""
        run, model = origins.find(state, name)
        place = self.names(state)[model.recipe_id]
        words = f"the model {model.digest[:12]} of run {run}"
        recipe = {"run": run, "recipe_id": model.recipe_id, "digest": model.digest}
        return [Ancestor(model.recipe_id, place, words, recipe, model.digest)]

    def progress(self, state: PipelineState) -> tuple[int, int | None]:
        """Return (phases that have ended, all phases)."""
        ended = sum(state.ended_phase(number) is not None for number in state.numbers)
        return ended, len(state.numbers) or None

    def outlook(
        self, state: PipelineState, rehearsal: Any, under_way: Sequence[tuple[str, float]] = ()
    ) -> Outlook:
        """Return how many phases have ended; of those that have not begun, no time is known."""
        base_outlook = super().outlook(state, rehearsal, under_way)
        return base_outlook if state.completed else replace(base_outlook, inside=None)

    def decision(self, state: PipelineState) -> UserDecision | None:
        """Return the gate that has stopped the pipeline, if one has and no user has overridden it."""
        return decide.stopping(state)

    def unit_of(self, row: Envelope) -> int | None:
        """Return the phase that an event ends, or None."""
        if row.type != PhaseEnded.type:
            return None
        event = PipelineState.registry.load(row)
        assert isinstance(event, PhaseEnded)
        return event.phase

    def head(self, state: PipelineState) -> Head:
        """Return the head: bits per byte of the newest measured model that goes on, and the gain."""
        facts = [Fact(name="result", value=name)] if (name := _goes_on(state)) else []
        base_head = default_panels.head(self, state, _result(state), facts)
        return base_head.model_copy(update={"verdict": ladder.gain(state)})

    def yardstick(self, state: PipelineState) -> dict[str, Any]:
        """Return the files of the items that results are measured on, or the phase that they are of."""
        places, config = state.submitted.test, state.submitted.config
        phases = [config.items_of(place) for place in places] or [1]
        ended = [state.ended_phase(number) for number in phases if number]
        lineages = [phase.lineage for phase in ended if phase]
        return {"their items are not known to be the same": (places, lineages)}

    def panels(self, state: PipelineState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return the panels that follow from the pipeline's own log."""
        return self._panels(state, None)

    def whole(
        self, state: PipelineState, children: Sequence[Child], curve: Sequence[float | None] = ()
    ) -> Sequence[Panel]:
        """Return the panels of a pipeline with its runs."""
        return self._panels(state, children)

    def _panels(self, state: PipelineState, runs: Sequence[Child] | None) -> Sequence[Panel]:
        """Return before and after, strip, quality and size, gates, timeline, phases, family."""
        children, strip = runs or (), stages.strip(state, runs)
        panels: list[Panel] = [*_ladder(state), strip, *along.along(state, children)]
        if (verdicts := gates.gates(state)) is not None:
            panels.append(verdicts)
        begun = [child for child in children if not child.reused]
        if (times := timeline(begun, stages.names(state, begun))) is not None:
            panels.append(times)
        panels.append(self._table(state, strip, runs is not None))
        family = lineage.lineage(state, children)
        return panels if family is None else [*panels, family]

    def tracked_parts(self, state: PipelineState) -> Parts:
        """Return the figures that its phases can have, for a tracker."""
        return {"figure": tracked.figures(state)}

    def tracked(self, state: PipelineState, after: int) -> list[tuple[int, dict[str, Any]]]:
        """Return (phase, row) for a tracker."""
        return tracked.rows(state, after)

    def stages(self, state: PipelineState, children: Sequence[Child]) -> Sequence[Stage]:
        """Return the phases."""
        return stages.stages(state, children)

    def _table(self, state: PipelineState, strip: Strip, has_runs: bool) -> Units:
        """Return the phases with all of their models and figures; `has_runs`: their runs are known."""
        rows = []
        for stage, row in zip(strip.stages, _phases(state), strict=True):
            run = next(iter(stage.runs), None) if has_runs else row["run"]
            cells = {**row, "state": stage.state, "run": run}
            rows.append(tuple(cells.values()))
        return Units(
            name="phases",
            title="Phases",
            says="Each with its models and all of its figures.",
            unit=self.unit,
            columns=PHASES,
            rows=tuple(rows),
        )

    def view(self, state: PipelineState) -> dict[str, Any]:
        """Return phases and gates."""
        return {"phases": _phases(state), "gates": report(state)["gates"]}

    def report(self, state: PipelineState, rows: Sequence[Envelope]) -> dict[str, Any]:
        """Return the report of a pipeline that has completed."""
        return report(state)

    def markdown(self, state: PipelineState, rows: Sequence[Envelope]) -> str:
        """Return the report for people, without what only the phases' own logs say."""
        return document.markdown(state, rows, {})


def _gate_id(number: int, metric: str) -> str:
    """Return what `names` has the words of a gate under."""
    return f"phase {number}: {metric}"


def report(state: PipelineState) -> dict[str, Any]:
    """Return a completed pipeline as plain data: phases, gates, models."""
    return {
        "run": state.run,
        "lineage_digest": state.completed.lineage_digest if state.completed else None,
        "phases": _phases(state),
        "gates": gates.plain(state),
        "models": {
            role: {"run": run, **model.model_dump()}
            for role, (run, model) in plan.outgoing(state, len(state.numbers)).items()
        },
    }


def _result(state: PipelineState) -> Result | None:
    """Return bits per byte of the newest measured model that goes on, and after which phase it stands.

    None if there is none.
    """
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
    """Return the measured models in a table, as the report has it; none if none was measured."""
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
    """Return the figures of a phase in the words of its gates, with their units."""
    kind, values = state.submitted.config.phase(number).kind, state.figures(number).items()
    return ", ".join(figure_text(plan.giver(kind, n), n, Figure(value=f.value)) for n, f in values)


def _phases(state: PipelineState) -> list[dict[str, Any]]:
    """Return phase, kind, state, run, models and figures of each phase, as texts."""
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
