"""Models of a pipeline by name. Pure."""

from __future__ import annotations

from pipeline import plan
from pipeline.events import PipelineState
from runs.errors import NotFoundError
from runs.event_types import MadeModel
from runs.kinds.origin import Origin


def by_phase(state: PipelineState) -> dict[str, dict[str, tuple[str, MadeModel]]]:
    """Return phase → role → (run, model), of the phases that have ended."""
    phases = state.submitted.config.phases if state.submitted else ()
    models_by_phase = {
        phase.name: plan.outgoing(state, number) for number, phase in enumerate(phases, start=1)
    }
    return {name: models for name, models in models_by_phase.items() if models}


def last(state: PipelineState) -> MadeModel | None:
    """Return the model that the newest phase gave; None if it gave none or several."""
    models = list(by_phase(state).values())[-1:]
    return next(iter(models[0].values()))[1] if models and len(models[0]) == 1 else None


def find(state: PipelineState, name: str) -> tuple[str, MadeModel]:
    """Return (run, model) that PHASE, PHASE:ROLE, a role of the last phase or an id means.

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


def origin(state: PipelineState, name: str) -> Origin:
    """Return a model's origin: the phase's run that made it. Raises NotFoundError."""
    run, model = find(state, name)
    return Origin(
        name=f"{state.run}-{name.replace(':', '-')}" if name else state.run,
        what=f"model {model.recipe_id[:12]} of run {run}",
        digest=model.digest,
        run=run,
        recipe_id=model.recipe_id,
    )
