"""The pipeline as a kind of run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from agent_forge.events import Envelope, Event
from agent_forge.events.envelope import Plain
from agent_forge.pipeline import decide, plan, report
from agent_forge.pipeline.config import PipelineConfig
from agent_forge.pipeline.events import (
    Forked,
    GateOverridden,
    PhaseEnded,
    PhaseFailed,
    PhaseMeasured,
    PipelineState,
    Started,
    Submitted,
)
from agent_forge.pipeline.panels import along
from agent_forge.pipeline.report import gathered
from agent_forge.pipeline.submission import checks, file
from agent_forge.pipeline.view import PipelineTracking, PipelineView, panels
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, NotFoundError
from agent_forge.runs.event_types import MadeModel
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.home import Home
from agent_forge.runs.kinds import controls
from agent_forge.runs.kinds.asked import CheckResult, Lookup, NamedInputs, Plan, Requests, RunRequest
from agent_forge.runs.kinds.children import Children
from agent_forge.runs.kinds.controls import Actions, Forks, UserDecision
from agent_forge.runs.kinds.decide import Delegate, NextWork, Start, Task
from agent_forge.runs.kinds.files import Verification
from agent_forge.runs.kinds.kind import Kind
from agent_forge.runs.kinds.origin import AncestorRecipe, LogModel, RunModels
from agent_forge.runs.kinds.setting_words import KindSettings
from agent_forge.runs.kinds.state import State
from agent_forge.runs.panels.panels import Panel
from agent_forge.runs.panels.stages import Stage
from agent_forge.runs.record.events import ChildEnded, Retried
from agent_forge.runs.record.lineage import Child
from agent_forge.weights.storage.weight_cache import Artifacts

#: The action by which a user lets a pipeline go on although a gate has stopped it.
OVERRIDE = "override"


class PipelineActions(Actions[PipelineState]):
    """The override of a gate."""

    @override
    def decision(self, state: PipelineState) -> UserDecision | None:
        return decide.stopping(state)

    @override
    def act(self, state: PipelineState, action: str, about: str, reason: str | None) -> list[Event]:
        """Return the events that let a pipeline go on behind the gate of the phase `about`."""
        if action != OVERRIDE:
            return super().act(state, action, about, reason)
        numbers = [number for number in state.numbers if state.named(number) == about]
        if not numbers:
            raise NotFoundError(
                f"run {state.run} has no phase {about!r}: {_names(state.submitted.config)}."
            )
        if not reason:
            raise ConfigError("an override needs a reason: it is recorded.")
        again = Retried(reason=reason)
        if numbers[0] in state.overridden:  # a kill came between the two events
            return [again]
        return [GateOverridden(phase=numbers[0], reason=reason), again]

    @override
    def refuses(self, state: PipelineState, event: Event) -> str | None:
        assert isinstance(event, GateOverridden)
        if event.phase in state.overridden:
            return "the gate is overridden already"
        if state.cancelled or state.completed:
            return controls.ended(state)
        stopped = [g for g in state.gates.get(event.phase, ()) if g.verdict == "stop"]
        return None if stopped else "no gate of that phase has stopped it"


class PhaseRuns(Children[PipelineState]):
    """The runs of a pipeline's phases."""

    @override
    def returned(self, state: PipelineState, task: Delegate, child: State) -> ChildEnded:
        return plan.returned(state, task, child)

    @override
    def refused(self, state: PipelineState, task: Delegate, why: str) -> ChildEnded:
        return plan.refused(state, task, why)

    @override
    def retries(self, state: PipelineState, task: Delegate) -> str | None:
        return plan.retry_key(state, task)

    @override
    def reuses(self, state: PipelineState) -> bool:
        return state.submitted.reuse

    @override
    def unlike(self, state: PipelineState, task: Delegate, child: State) -> str | None:
        return plan.unlike(state, task, child)

    @override
    def asked_otherwise(self, state: PipelineState, task: Delegate, child: State) -> str | None:
        return plan.asked_otherwise(state, task, child)

    @override
    def completed(self, state: PipelineState) -> Iterator[tuple[Delegate, ChildEnded]]:
        for number in state.numbers:
            if (ended := state.ended_phase(number)) is not None:
                yield Delegate(f"phase/{number}", ended.child, RunRequest("")), ended
            if (measured := state.measured_phase(number)) is not None:
                yield Delegate(f"measure/{number}", measured.child, RunRequest("")), measured

    @override
    def stage_of(self, state: PipelineState, key: str) -> str:
        """Return a run's phase in words: "phase 8 of 9, mixed"; then ", measurement" for one."""
        work, number = key.split("/")[:2]
        name = state.named(int(number))
        measured = ", measurement" if work == "measure" else ""
        return f"phase {number} of {len(state.numbers)}, {name}{measured}"

    @override
    def stages(self, state: PipelineState, children: Sequence[Child]) -> Sequence[Stage]:
        return along.stages(state, children)

    @override
    def panels(self, state: PipelineState, children: Sequence[Child]) -> Sequence[Panel]:
        return panels(state, children)

    @override
    def report(self, log: Any, state: PipelineState, rows: Sequence[Envelope]) -> str:
        """Return the report as Markdown, a section for each phase, from the logs of its runs."""
        return report.markdown(state, rows, gathered(log, state))


class PipelineSettings(KindSettings[PipelineState]):
    """The rules of a pipeline's settings."""

    @override
    def changed(self, config: PipelineConfig, changes: Mapping[str, object]) -> PipelineConfig:
        whole = config.model_dump(mode="json")
        for name, value in changes.items():
            phase, dot, setting = name.partition(".")
            phases = [entry for entry in whole["phases"] if entry["name"] == phase]
            if not dot:
                whole[name] = value
            elif not phases:
                raise ConfigError(f"there is no phase {phase!r}: {_names(config)}.")
            else:
                phases[0]["settings"][setting] = value
        return self.parse(whole)


class PipelineForks(Forks[PipelineState]):
    """The rules of forks of pipelines."""

    @override
    def check(self, state: PipelineState, changes: Mapping[str, object]) -> None:
        """Raise ConfigError for a change of a phase that has ended, or that its kind refuses."""
        before = state.submitted.config
        after = self.kind.settings.changed(state.submitted.config, changes)
        if after.test != before.test:
            raise ConfigError(
                "the items that results are measured on stay those of the pipeline: start a new one to "
                "measure on others."
            )
        for number, phase in enumerate(before.phases, start=1):
            gone = state.ended_phase(number) is not None
            if gone and after.phases[number - 1 : number] != (phase,):
                raise ConfigError(
                    f"phase {phase.name} has ended before this place: a fork keeps it as it is. Fork "
                    f"before it ends, with --generation {number}."
                )
        for phase in after.phases:
            if phase not in before.phases:
                kinds.of(phase.kind).settings.parse(phase.settings)

    @override
    def place_of(self, rows: Sequence[Envelope], unit: int) -> int:
        return self.end_of(rows, unit) - 1

    @override
    def end_of(self, rows: Sequence[Envelope], unit: int) -> int:
        for place, row in enumerate(rows, start=1):
            if self.kind.view.unit_of(row) == unit:
                return place
        raise ConfigError(f"phase {unit} has not ended.")


class PipelineRequests(Requests[PipelineState]):
    """The ways in which users ask for pipelines."""

    has_file = True

    @override
    def read(self, text: str) -> dict[str, object]:
        return file.parse(text)

    @override
    def written(self, config: Mapping[str, object]) -> str | None:
        try:
            return file.text(config)
        except ValueError:
            return None

    @override
    def again(self, submitted: Submitted) -> RunRequest:
        request = super().again(submitted)
        return replace(request, config=checks.again(submitted, request.config))

    @override
    def inputs_in(self, config: Mapping[str, object], there: Callable[[str], bool]) -> NamedInputs:
        return checks.named(self.kind, self.kind.settings.parse(config), there)

    @override
    def texts(self, submitted: Submitted) -> Iterator[tuple[str, str]]:
        for phase in submitted.config.phases:
            yield from ((model, "a model's name") for model in phase.given)
            yield from ((entry, "a path") for entry in phase.data)


class PhaseModels(RunModels[PipelineState]):
    """The models of the runs of a pipeline's phases."""

    @override
    def result(self, state: PipelineState) -> MadeModel | None:
        """Return the newest phase's `MadeModel`; None if it gave none or several."""
        return plan.last(state)

    @override
    def find(self, state: PipelineState, name: str) -> str:
        """Return the recipe id that PHASE, PHASE:ROLE, a role of the last phase or an id means."""
        return plan.find(state, name)[1].recipe_id

    @override
    def origin(self, state: PipelineState, rows: Sequence[Envelope], name: str) -> LogModel:
        return plan.origin(state, name)

    @override
    def ancestry(self, state: PipelineState, name: str) -> list[AncestorRecipe]:
        """Return [`AncestorRecipe`], the model alone: the phase's run that made it says the rest."""
        run, model = plan.find(state, name)
        place = self.kind.view.names(state)[model.recipe_id]
        words = f"the model {model.digest[:12]} of run {run}"
        recipe = {"run": run, "recipe_id": model.recipe_id, "digest": model.digest}
        return [AncestorRecipe(model.recipe_id, place, words, recipe, model.digest)]


class PipelineVerification(Verification[PipelineState]):
    """The rules by which the folder of a pipeline is compared with its run."""

    @override
    def document(self, folder: Path) -> dict[str, object] | None:
        from agent_forge.pipeline.folder import document

        return document(folder)

    @override
    def folder(
        self, home: Home, folder: Path, document: Plain, state: Any, is_known: bool
    ) -> Iterator[Finding]:
        from agent_forge.pipeline.folder import verify

        yield from verify(home, folder, document, state)


class PipelineKind(Kind[PipelineState]):
    """Phases in a row, each a run of its own."""

    name = "pipeline"
    title = "a pipeline"
    line = "run phases in a row, with gates between them"
    unit = "phase"
    result_name = "pipeline"
    config = PipelineConfig
    submitted = Submitted
    forked = Forked
    state = PipelineState
    answers: ClassVar[Mapping[type[Event], type]] = {
        Started: Start,
        PhaseEnded: Delegate,
        PhaseMeasured: Delegate,
        PhaseFailed: Delegate,
    }
    listed = frozenset({PhaseEnded.type})
    naming = frozenset({"phases", "phase", "test"})
    view = cached_property(PipelineView)
    tracking = cached_property(PipelineTracking)
    settings = cached_property(PipelineSettings)
    requests = cached_property(PipelineRequests)
    forks = cached_property(PipelineForks)
    actions = cached_property(PipelineActions)
    models = cached_property(PhaseModels)
    verification = cached_property(PipelineVerification)
    children = cached_property(PhaseRuns)

    # ---- deciding ------------------------------------------------------------------------------

    @override
    def due(self, state: PipelineState) -> NextWork:
        return decide.due(state)

    @override
    def essential(self, state: PipelineState, task: str) -> bool:
        """Return True: later phases build on every phase."""
        return True

    @override
    def validate_answer(self, state: PipelineState, task: Task, event: Event) -> str | None:
        if isinstance(task, Delegate) and isinstance(event, PhaseEnded | PhaseMeasured | PhaseFailed):
            number, measured = plan.number_of(task), plan.work_of(task) == "measure"
            name = state.named(number)
            if (event.phase, event.name) != (number, name):
                return "another phase has ended than the one that was asked for"
            if event.reused and (isinstance(event, PhaseFailed) or not state.submitted.reuse):
                return "it takes an ended run, and was not asked to"
            if (event.child == task.run) == bool(event.reused):
                return "another run has ended than the one that was asked for"
            if isinstance(event, PhaseEnded if measured else PhaseMeasured):
                return "a phase's end and its measurement are taken for one another"
            if isinstance(event, PhaseFailed) and event.retries != state.retries:
                return f"it says {event.retries} retries, and there were {state.retries}"
        return None

    @override
    def wrong_result(self, state: PipelineState) -> Iterator[str]:
        last = plan.outgoing(state, len(state.numbers))
        if state.completed.models != {role: model for role, (_, model) in last.items()}:
            yield "the models are not those of the last phase"

    # ---- asking for a run ------------------------------------------------------------------------

    @override
    def plan(self, request: RunRequest, lookup: Lookup) -> Plan:
        """Return the plan of a pipeline; every phase is checked before anything starts."""
        return checks.plan(self, request, lookup)

    @override
    def check_machine(self, config: PipelineConfig) -> None:
        checks.check_machine(config)

    @override
    def check(self, plan: Plan) -> CheckResult:
        """Return a `CheckResult`: warnings of phases that need no other. Raise a start's errors."""
        return checks.check(plan)

    # ---- results ---------------------------------------------------------------------------------

    @override
    def results(self, state: PipelineState) -> dict[str, MadeModel]:
        return dict(state.completed.models)

    @override
    def context(self, state: PipelineState, cache: Artifacts) -> Any:
        return checks.Context(state)

    @override
    def write_result(self, home: Home, state: PipelineState, out: Path) -> dict[str, object]:
        """Write the folder of the last phase's result and the pipeline's report; return the report."""
        from agent_forge.pipeline import folder

        return folder.write(home, state, out, self.view.report(state, ()))


def _names(config: PipelineConfig) -> str:
    return "it has " + ", ".join(phase.name for phase in config.phases)
