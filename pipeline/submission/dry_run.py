"""Dry run of a pipeline: the cost of each of its phases on this machine. Nothing is recorded.

The phases are taken in order, as if each had ended. If a phase's kind knows the shape of the models
that the phase will make, each gets a stand-in, and later phases are tried on these.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent_forge.events.envelope import Plain
from agent_forge.pipeline import plan as plans
from agent_forge.pipeline.config import ITEMS
from agent_forge.pipeline.events import PhaseEnded, PipelineState, Started, Submitted, Work
from agent_forge.runs import kinds
from agent_forge.runs.errors import ForgeError
from agent_forge.runs.event_types import MadeModel, ModelReference
from agent_forge.runs.history import children, repository
from agent_forge.runs.history.repository import Log
from agent_forge.runs.kinds.asked import Lookup, Names, Plan
from agent_forge.runs.kinds.decide import Delegate
from agent_forge.runs.kinds.forecast import Amount, Forecast, unknown
from agent_forge.runs.kinds.kind import Kind
from agent_forge.runs.kinds.state import State
from agent_forge.runs.system.process_limits import peak_memory

#: The name that stands for the pipeline's.
RUN = "dry-run"
#: Digest of a history that there is not.
NOTHING = "0" * 64


@dataclass(frozen=True)
class PhaseCost:
    """The cost of a phase's run, or of its measurement."""

    #: From 1.
    phase: int
    name: str
    work: Work
    kind: str
    forecast: Forecast

    @property
    def label(self) -> str:
        """The run in words."""
        return self.name + (", measured" if self.work == "measure" else "")


@dataclass
class _Made:
    """Stand-ins for the results of the phases so far."""

    #: Name of a model, as a later phase asks for it → its stand-in.
    models: dict[str, ModelReference] = field(default_factory=dict)
    #: RUN:items → file.
    items: dict[str, str] = field(default_factory=dict)
    #: Run → its phase.
    phases: dict[str, str] = field(default_factory=dict)


@dataclass
class _Names:
    """A lookup of models by name: stand-ins of phases, then models of the log."""

    there: _Made
    others: Names

    def __call__(self, text: str) -> ModelReference | None:
        """Return the model that a text names; None if there is none."""
        return self.there.models.get(text) or self.others(text)

    def hidden_by(self, text: str, folder: Path) -> None:
        """Do nothing: the check before the dry run has warned already."""


def costs(plan: Plan, named: Names, log: Log | None) -> Iterator[PhaseCost]:
    """Yield a `PhaseCost` for each phase of a plan in order, and for each phase's measurement.

    `named` looks up models of other runs. `log` has runs that may have cost the same; None: there is no
    log yet.
    """
    state, there = PipelineState(), _Made()
    state.take(Submitted(run=RUN, owner="", config=plan.config, **plan.fields))
    state.take(Started(warnings=()))
    with tempfile.TemporaryDirectory() as folder:
        for number, phase in enumerate(plan.config.phases, start=1):
            task = plans.delegate(state, number)
            kind = kinds.of(phase.kind)
            forecast, roles = _tried(task, there, named, log, Path(folder))
            yield PhaseCost(number, phase.name, "phase", kind.name, forecast)
            _end(state, there, task, number, roles, forecast)
            if plans.to_measure(state, number):
                task = plans.delegate(state, number, "measure")
                forecast, _ = _tried(task, there, named, log, Path(folder))
                yield PhaseCost(number, phase.name, "measure", plans.MEASURE, forecast)


def _tried(
    task: Delegate, there: _Made, named: Names, log: Log | None, folder: Path
) -> tuple[Forecast, tuple[str, ...]]:
    """Return (forecast of a task's run, roles of the models that it gives)."""
    from agent_forge.weights.storage.weight_cache import Artifacts

    kind, request = kinds.of(task.asked.kind), task.asked
    roles = tuple(kind.roles(kind.settings.parse(request.config)))
    models = [model for names in request.models.values() for model in names]
    for name in (*models, *request.data):
        phase = there.phases.get(name.partition(":")[0])
        if phase and name not in {**there.models, **there.items}:
            return unknown(f"it builds on phase {phase}, whose result has no known shape yet"), roles
    data = [there.items.get(entry, entry) for entry in request.data]
    lookup = Lookup({}, _Names(there, named), elsewhere=True)
    try:
        plan = kind.plan(replace(request, data=data), lookup)
        roles = tuple(kind.roles(plan.config))
        submission = kind.submitted(run=task.run, owner="", config=plan.config, **plan.fields)
        with peak_memory() as peak:
            forecast = kind.forecast(submission, Artifacts(folder / "artifacts"), folder / task.run)
        forecast = forecast.held(peak[0])
    except ForgeError as error:
        return unknown(f"it could not be tried here: {error}"), roles
    if forecast.seconds.value is None and not models and log is not None:
        forecast = _as_before(log, kind, submission, forecast)
    return forecast, roles


def _as_before(log: Log, kind: Kind, submission: Any, forecast: Forecast) -> Forecast:
    """Return the forecast, with the time of an equal run on such a machine if the log has one."""
    for rows in reversed(list(children.alike(log, submission, kind.name))):
        state: State = repository.fold(rows)
        if state.started.machine is None or state.started.machine == _machine(submission.config.device):
            took = state.spent.device
            how = f"as run {state.run} took, with the same settings"
            return replace(forecast, seconds=Amount(took, how))
    return forecast


def _machine(device: str) -> str:
    """Return this machine's profile as text, in the form that `started` pins."""
    from agent_forge.evaluation.autotune import machine_profile
    from agent_forge.weights.devices import of_process, resolve

    return machine_profile(of_process(resolve(device))).of_machine


def _end(
    state: PipelineState,
    there: _Made,
    task: Delegate,
    number: int,
    roles: tuple[str, ...],
    forecast: Forecast,
) -> None:
    """Apply `phase_ended` to the state, with stand-ins for the phase's models and items."""
    name = state.named(number)
    there.phases[task.run] = name
    models = {role: _model(task.run, role) for role in roles}
    for role, folder in forecast.models.items():
        reference = f"{task.run}:{models[role].recipe_id}"
        there.models[reference] = ModelReference(name=f"{name}-{role}", path=str(folder))
    if forecast.items is not None:
        there.items[f"{task.run}:{ITEMS}"] = str(forecast.items)
    ended = PhaseEnded(
        child=task.run,
        child_version=1,
        child_head=NOTHING,
        phase=number,
        name=name,
        lineage=NOTHING,
        models=models,
        figures={},
    )
    state.take(ended, key=f"{RUN}/{task.key}")


def _model(run: str, role: str) -> MadeModel:
    """Return a made model whose ids are hashes of run and role; no such model exists."""
    id_ = hashlib.sha256(f"{run}:{role}".encode()).hexdigest()
    return MadeModel(recipe_id=id_, digest=id_)


def told(all_costs: list[PhaseCost]) -> dict[str, object]:
    """Return costs as JSON data, with the sums of time and disk, and the largest memory."""

    def plain(cost: PhaseCost) -> dict[str, object]:
        amounts = {n: getattr(cost.forecast, n) for n in ("seconds", "disk", "memory")}
        return {
            "phase": cost.name,
            "label": cost.label,
            "kind": cost.kind,
            **{name: {"value": amount.value, "from": amount.how} for name, amount in amounts.items()},
        }

    rows = [plain(cost) for cost in all_costs]
    return {"costs": rows, "in_all": {n: _sum(rows, n) for n in ("seconds", "disk", "memory")}}


def _sum(rows: list[Plain], name: str) -> dict[str, object]:
    """Return {"value": sum or largest memory, "without": labels of unknown parts}."""
    values: list[float] = [row[name]["value"] for row in rows if row[name]["value"] is not None]
    whole = max(values, default=None) if name == "memory" else sum(values) if values else None
    left = [row["label"] for row in rows if row[name]["value"] is None]
    return {"value": whole, "without": left}
