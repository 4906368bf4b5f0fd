"""Plan of a pipeline: requests for its phases' runs, references to models, answers to tasks. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from agent_forge.pipeline.config import ITEMS, GateConfig, PhaseConfig, PipelineConfig
from agent_forge.pipeline.events import PhaseEnded, PhaseFailed, PhaseMeasured, PipelineState, Work
from agent_forge.runs import kinds
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.event_types import MadeModel, ModelReference
from agent_forge.runs.kinds.asked import RunRequest, differ
from agent_forge.runs.kinds.decide import Delegate
from agent_forge.runs.kinds.kind import Kind
from agent_forge.runs.kinds.origin import LogModel
from agent_forge.runs.kinds.state import State
from agent_forge.runs.record.device_setting import AUTO

#: The kind of run that measures a phase's model, and what ends its name.
MEASURE, TEST = "measure", "test"


def delegate(state: PipelineState, number: int, what: Work = "phase") -> Delegate:
    """Return the task (`Delegate`) of a phase or its measurement: a run, named after the pipeline."""
    phase = state.submitted.config.phase(number)
    request = asked(state, phase) if what == "phase" else measurement(state, number)
    return Delegate(state.keys(number, what)[-1], child_name(state, number, what), request)


def child_name(state: PipelineState, number: int, what: Work = "phase") -> str:
    """Return the name of a phase's run: RUN.2-merge, and RUN.2-merge-1 after that was cancelled.

    Its measurement is RUN.2-merge-test.
    """
    name = f"{state.run}.{number}-{state.named(number)}"
    if what == "measure":
        name += f"-{TEST}"
    given_up = sum(trouble.status != "failed" for trouble in state.troubles(number, what))
    return name + (f"-{given_up}" if given_up else "")


# ---- measurements ----------------------------------------------------------------------------


def test_items(config: PipelineConfig, number: int) -> tuple[str, ...] | None:
    """Return the items to measure a phase's model on, as the settings name them; None: there are none.

    Without `test`, those of the first phase that pins items. A later phase's items do not exist yet.
    """
    if config.test:
        there = all((config.items_of(entry) or 0) <= number for entry in config.test)
        return config.test if there else None
    for phase in config.phases[:number]:
        if kinds.of(phase.kind).gives_items:
            return (f"{phase.name}:{ITEMS}",)
    return None


def gates(state: PipelineState, number: int) -> tuple[GateConfig, ...]:
    """Return a phase's `GateConfig`s; before it has ended, those of a phase that makes one model."""
    ended = state.ended_phase(number)
    return gates_of(state.submitted.config, number, len(ended.models) if ended else 1)


def gates_of(config: PipelineConfig, number: int, models: int) -> tuple[GateConfig, ...]:
    """Return the `GateConfig`s of a phase that makes `models` models: its own, and the pipeline's.

    The pipeline's apply if one model is made of given models, and there are items to measure on.
    """
    phase = config.phase(number)
    if not phase.given or models != 1 or test_items(config, number) is None:
        return phase.gates
    metrics = {gate.metric for gate in phase.gates}
    return (*phase.gates, *(gate for gate in config.gates if gate.metric not in metrics))


def giver(kind: str, figure: str) -> Kind:
    """Return the kind that gives a figure: the phase's own kind, or else that of measurements."""
    run_kind = kinds.of(kind)
    return run_kind if figure in run_kind.figures_of else kinds.of(MEASURE)


def measures(config: PipelineConfig, number: int, models: int) -> bool:
    """Return True if a gate of a phase that makes `models` models needs a measurement of its model.

    That is a gate on a figure that the phase's own run does not give.
    """
    if models != 1 or test_items(config, number) is None:
        return False
    figures = kinds.of(config.phase(number).kind).figures_of
    return any(gate.metric not in figures for gate in gates_of(config, number, models))


def to_measure(state: PipelineState, number: int) -> bool:
    """Return True if a phase has ended and its model must be measured."""
    ended = state.ended_phase(number)
    return ended is not None and measures(state.submitted.config, number, len(ended.models))


def measuring(state: PipelineState, number: int) -> bool:
    """Return True if a phase has ended, and its gates wait for the measurement of its model."""
    waits = number not in state.gates and state.measured_phase(number) is None
    return waits and to_measure(state, number)


def baselines(state: PipelineState, number: int) -> dict[str, float]:
    """Return figure → its value for the phase's best input, on the items of the measurement.

    `retention` is bits per byte of the best input over those of the phase's model, and `size` its bytes
    over those of the largest input; the input's own numbers follow from both. A figure that the phase's
    run has measured itself has no baseline.
    """
    measured, ended = state.measured_phase(number), state.ended_phase(number)
    if measured is None or ended is None:
        return {}
    values = {name: figure.value for name, figure in measured.figures.items()}
    baseline_values: dict[str, float] = {}
    if retention := values.get("retention"):
        baseline_values |= {"retention": 1.0, "regression": 0.0}
        baseline_values["bits_per_byte"] = values.get("bits_per_byte", 0.0) * retention
        baseline_values["cumulative"] = values.get("cumulative", 0.0) / retention
    if size := values.get("size"):
        baseline_values |= {"size": 1.0, "bytes": values.get("bytes", 0.0) / size}
    return {
        name: baseline_values[name]
        for name in baseline_values
        if name in values and name not in ended.figures
    }


def measurement(state: PipelineState, number: int) -> RunRequest:
    """Return the request for the run that measures a phase's model."""
    config, ended = state.submitted.config, state.ended_phase(number)
    assert ended
    (model,) = ended.models.values()
    models = {
        "model": [f"{ended.child}:{model.recipe_id}"],
        "against": _models(state, config.phase(number).given),
        "first": _models(state, config.first()) or _all_of(state.ended_phase(1)),
    }
    places = state.submitted.test or test_items(config, number) or ()
    settings = {} if config.device == AUTO else {"device": config.device}
    return RunRequest(MEASURE, settings, models, [_data(state, place) for place in places])


def _models(state: PipelineState, references: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(_model(state, reference) for reference in references))


def _all_of(ended: PhaseEnded | None) -> list[str]:
    """Return the names of all models of an ended phase, "RUN:ID"."""
    return [f"{ended.child}:{model.recipe_id}" for model in ended.models.values()] if ended else []


# ---- inputs ----------------------------------------------------------------------------------


def asked(state: PipelineState, phase: PhaseConfig) -> RunRequest:
    """Return the request for a phase's run; the phases that it depends on have ended."""
    config = state.submitted.config
    settings = dict(phase.settings)
    if config.device != AUTO:
        settings.setdefault("device", config.device)
    models = {role: [_model(state, m) for m in references] for role, references in phase.models.items()}
    data = [_data(state, place) for place in state.submitted.places.get(phase.name, ())]
    return RunRequest(phase.kind, settings, models, data)


def resolved(state: PipelineState, reference: str) -> tuple[str, MadeModel] | str | None:
    """Return (run, model) for a reference to a phase, else the model's name; None if not given.

    For a model of no phase, return its name in the settings; None if the phase gave no such model.
    """
    while (place := state.submitted.config.named(reference)) is not None:
        number, role = place
        if (passed := state.passed.get(number)) is None:
            ended = state.ended_phase(number)
            assert ended
            roles = [role] if role else list(ended.models)
            model = ended.models.get(roles[0]) if len(roles) == 1 else None
            return (ended.child, model) if model else None
        reference = passed.reference
    return reference


def _model(state: PipelineState, reference: str) -> str:
    """Return the name under which a model is looked up: RUN:ID, a Hub id with revision, or a folder."""
    source = resolved(state, reference)
    assert source, "decided from a reference that `missing` tells of"
    if isinstance(source, tuple):
        run, model = source
        return f"{run}:{model.recipe_id}"
    return _name(state.submitted.given[source])


def _name(reference: ModelReference) -> str:
    """Return the Hub id with revision, or the path, of a model of no phase."""
    return f"{reference.hub_id}@{reference.revision}" if reference.hub_id else reference.path


def missing(state: PipelineState, number: int) -> str:
    """Return a sentence about an input of a phase that no earlier phase gave; empty if all exist."""
    for reference in state.submitted.config.phase(number).given:
        if resolved(state, reference) is None:
            return f"it is given {reference}, and there is no such model"
    return ""


def _data(state: PipelineState, place: str) -> str:
    """Return the path of data, or RUN:items for the items of a phase's run."""
    number = state.submitted.config.items_of(place)
    if number is None:
        return place
    ended = state.ended_phase(number)
    assert ended
    return f"{ended.child}:{ITEMS}"


# ---- answers ---------------------------------------------------------------------------------


def outgoing(state: PipelineState, number: int) -> dict[str, tuple[str, MadeModel]]:
    """Return role → (run, model) of the models that go on after a phase.

    A model that passes unchanged has the role "". It is left out if it is of no phase.
    """
    if (passed := state.passed.get(number)) is None:
        ended = state.ended_phase(number)
        return {r: (ended.child, m) for r, m in ended.models.items()} if ended else {}
    source = resolved(state, passed.reference)
    return {"": source} if isinstance(source, tuple) else {}


def returned(
    state: PipelineState, task: Delegate, child: State
) -> PhaseEnded | PhaseMeasured | PhaseFailed:
    """Return the answer to a phase's task, from the ended run: ended, measured or failed."""
    kind, number = kinds.of(child.kind), number_of(task)
    place = {"child": child.run, "child_version": child.version, "child_head": child.head}
    name = state.named(number)
    if child.completed and work_of(task) == "measure":
        return PhaseMeasured(
            **place,
            phase=number,
            name=name,
            lineage=child.completed.lineage_digest,
            figures=kind.figures(child),
        )
    if child.completed:
        return PhaseEnded(
            **place,
            phase=number,
            name=name,
            lineage=child.completed.lineage_digest,
            models=kind.results(child),
            figures=kind.figures(child),
        )
    why = child.failed.reason if child.failed else getattr(child.cancelled, "reason", None)
    return PhaseFailed(
        **place,
        phase=number,
        name=name,
        status="failed" if child.failed else "cancelled",
        reason=why or "no reason was given",
        retries=state.retries,
    )


def unlike(state: PipelineState, task: Delegate, child: State) -> str | None:
    """Return why an ended run is not the one that a task needs, None if it may be.

    Files of data and models of no phase are compared by what the run has pinned, not here.
    """
    if why := asked_otherwise(state, task, child):
        return why
    request, pinned = _wanted(state, task), kinds.of(child.kind).inputs(child)
    for role in {**request.models, **pinned}:
        models, pinned_digests = request.models.get(role, ()), pinned.get(role, ())
        digests = [_digest(state, model) for model in models]
        if differ(digests, pinned_digests):
            return f"phase {state.named(number_of(task))} asks for other models as {role}"
    return None


def asked_otherwise(state: PipelineState, task: Delegate, child: State) -> str | None:
    """Return why a run's kind or settings are not those that a task needs; None if they are.

    The device is left out: a fork may change it, and the pinned profile records it. Settings that the
    program did not have yet when the run was submitted are left out too.
    """
    request, settings = _wanted(state, task), child.submitted.config
    kind = kinds.of(request.kind)
    if child.kind != kind.name:
        return f"phase {state.named(number_of(task))} asks for {kind.title}"
    device = {"device": settings.device} if hasattr(settings, "device") else {}
    if not kind.settings.fit({**_unrecorded(child), **request.config, **device}, settings):
        return f"phase {state.named(number_of(task))} asks for other settings"
    return None


def _unrecorded(child: State) -> dict[str, object]:
    """Return name → today's value of settings that a run's submission does not record.

    These settings are younger than the run, which did not follow today's defaults.
    """
    settings = child.submitted.config.model_dump(mode="json")
    for _, type_, data in child.lineage:
        if type_ == child.submitted.type:
            config = json.loads(data)["config"]
            return {name: value for name, value in settings.items() if name not in config}
    return {}


def _wanted(state: PipelineState, task: Delegate) -> RunRequest:
    """Return the request for a task's run: a phase's, or its measurement's."""
    number = number_of(task)
    if work_of(task) == "measure":
        return measurement(state, number)
    return asked(state, state.submitted.config.phase(number))


def _digest(state: PipelineState, model: str) -> str | None:
    """Return the digest of a model by the name that `_model` gives it; None if no log has it."""
    digests = {_name(reference): reference.digest for reference in state.submitted.given.values()}
    for number in state.numbers:
        if (ended := state.ended_phase(number)) is not None:
            models = ended.models.values()
            digests |= {
                f"{ended.child}:{made_model.recipe_id}": made_model.digest for made_model in models
            }
    return digests.get(model)


def refused(state: PipelineState, task: Delegate, why: str) -> PhaseFailed:
    """Return the `phase_failed` answer to a task whose run could not be submitted."""
    number = number_of(task)
    return PhaseFailed(
        child=task.run,
        child_version=0,
        child_head="",
        phase=number,
        name=state.named(number),
        status="refused",
        reason=why,
        retries=state.retries,
    )


def retry_key(state: PipelineState, task: Delegate) -> str | None:
    """Return the key of the retry of a phase's failed run; None if the run did not fail."""
    troubles = state.troubles(number_of(task), work_of(task))
    if not troubles or troubles[-1].status != "failed":
        return None
    digits = hashlib.sha256(f"{state.run}/{task.key}".encode()).hexdigest()
    return f"{task.run}/retried/{digits}"


def number_of(task: Delegate) -> int:
    """Return the number of a task's phase."""
    return int(task.key.split("/")[1])


def work_of(task: Delegate) -> Work:
    """Return "phase" for a task of a phase's run, or "measure" for one of its measurement."""
    return "measure" if task.key.startswith("measure/") else "phase"


# ---- models by name --------------------------------------------------------------------------


def by_phase(state: PipelineState) -> dict[str, dict[str, tuple[str, MadeModel]]]:
    """Return phase → role → (run, model) that goes on, of ended phases with models."""
    phases = state.submitted.config.phases if state.submitted else ()
    models_by_phase = {
        phase.name: outgoing(state, number) for number, phase in enumerate(phases, start=1)
    }
    return {name: models for name, models in models_by_phase.items() if models}


def last(state: PipelineState) -> MadeModel | None:
    """Return the model that the newest phase gave; None if it gave none or several."""
    models = list(by_phase(state).values())[-1:]
    return next(iter(models[0].values()))[1] if models and len(models[0]) == 1 else None


def find(state: PipelineState, name: str) -> tuple[str, MadeModel]:
    """Return (run, model) named by PHASE, PHASE:ROLE, a role of the last phase, or an id.

    An empty name means the result. Raises NotFoundError.
    """
    phases = by_phase(state)
    newest = list(phases.values())[-1] if phases else {}
    phase, _, role = name.partition(":")
    models = phases.get(phase)
    if models is None:
        models, role = newest, name
    matches = [models[role]] if role in models else []
    if not role:
        matches = list(models.values()) if len(models) == 1 else []
    elif not matches:
        every = (pair for models in phases.values() for pair in models.values())
        ids = {model.recipe_id: (run, model) for run, model in every}
        matches = [pair for id_, pair in ids.items() if id_.startswith(role)]
    if len(matches) != 1:
        names = ", ".join(f"{p}:{r}" if r else p for p, roles in phases.items() for r in roles)
        raise NotFoundError(f"run {state.run} has no model {name!r}. It has {names or 'none yet'}.")
    return matches[0]


def origin(state: PipelineState, name: str) -> LogModel:
    """Return a named model's `LogModel`: digest, and the run that made it. Raises NotFoundError."""
    run, model = find(state, name)
    return LogModel(
        name=f"{state.run}-{name.replace(':', '-')}" if name else state.run,
        what=f"model {model.recipe_id[:12]} of run {run}",
        digest=model.digest,
        run=run,
        recipe_id=model.recipe_id,
    )
