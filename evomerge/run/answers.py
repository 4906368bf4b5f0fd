"""Check that an event answers the task that was asked for.

Pure. Part of a task's result is known only from the world (weights' digest, outcomes, seconds). The
other part was asked for (recipe, place, draw). That second part, and all that follows from the
first, is compared here.
"""

from __future__ import annotations

from agent_forge.events import Event
from agent_forge.evomerge.recipes.recipe import Source
from agent_forge.evomerge.recipes.tensor_groups import choose
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.rules import early_stopping
from agent_forge.evomerge.run.state import Candidate, RunState
from agent_forge.evomerge.run.tasks import (
    Build,
    BuildBaseline,
    ChooseLayers,
    Evaluate,
    MeasureCost,
    Task,
)
from agent_forge.runs.kinds.decide import Start

#: Event → the kind of task that the event answers.
ANSWERS: dict[type[Event], type[Task]] = {
    events.Started: Start,
    events.Profiled: MeasureCost,
    events.BaselineBuilt: BuildBaseline,
    events.LayersChosen: ChooseLayers,
    events.Seeded: Build,
    events.Merged: Build,
    events.Mutated: Build,
    events.Sampled: Build,
    events.Crossed: Build,
    events.Evaluated: Evaluate,
}


def validate_answer(state: RunState, task: Task, event: Event) -> str | None:
    """Return the reason why the event does not answer the open task; None if it does."""
    match task, event:
        case Start(), events.Started():
            return _start_fault(state, event)
        case BuildBaseline(), events.BaselineBuilt():
            expected_event = event.model_copy(update={"name": task.name, "recipe": task.recipe})
            return _build_fault(state, event, expected_event)
        case Build(), _ if isinstance(event, Candidate):
            return _build_fault(state, event, _expected_event(task, event))
        case ChooseLayers(), events.LayersChosen():
            return _layers_fault(event, task)
        case Evaluate(), events.Evaluated():
            return _measurement_fault(state, event, task)
    return None


def _start_fault(state: RunState, event: events.Started) -> str | None:
    """Return the reason why `started` contradicts the submission or the digests; None if not."""
    assert state.submitted
    if len(event.sources) != len(state.submitted.sources):
        return "started has another number of sources than was submitted"
    if state.submitted.base is None and event.base != event.sources[0]:
        return "no base was submitted, and started has another one than the first source"
    records = (event.base, *event.sources)
    if any(record.recipe_id != Source(digest=record.digest).id for record in records):
        return "a source has another id than its digest gives"
    return None


def _expected_event(task: Build, event: Candidate) -> Event:
    """Return the event that the task asks for, with digest, sketch and seconds as recorded."""
    proposal = task.proposal
    recorded_fields = {"digest": event.digest, "sketch": event.sketch, "seconds": event.seconds}
    place = {"generation": task.generation, "slot": proposal.slot}
    fields = {**place, "recipe_id": proposal.recipe.id, "recipe": proposal.recipe, **recorded_fields}
    return events.candidate(proposal.kind, proposal.parents, **fields)


def _build_fault(
    state: RunState, event: events.BaselineBuilt | Candidate, expected_event: Event
) -> str | None:
    """Return the reason why the build does not answer the task; None if it does.

    Recipe, place and parents must be those of the task. Equal recipes must have equal weights.
    """
    if event.recipe != getattr(expected_event, "recipe", None) or event.recipe_id != event.recipe.id:
        return f"{event.type} holds another recipe than the one that was asked for"
    if event != expected_event:
        return f"{event.type} says another kind, place, name or parents than were asked for"
    if state.built.get(event.recipe_id, (event.digest, event.sketch)) != (event.digest, event.sketch):
        return f"{event.type} has other weights than the same recipe gave before"
    return None


def _layers_fault(event: events.LayersChosen, task: ChooseLayers) -> str | None:
    proposal = task.proposal
    if (event.generation, event.slot) != (task.generation, proposal.slot):
        return "layers were chosen for another place than the one that was asked for"
    if event.proposal != proposal.recipe.id:
        return "layers were chosen for another proposal than the one that was asked for"
    if event.layers != choose(event.scores):
        return "the layers are not those that the recorded gains choose"
    return None


def _measurement_fault(state: RunState, event: events.Evaluated, task: Evaluate) -> str | None:
    """Return the reason why the measurement does not answer the task; None if it does.

    Fitness must follow from the outcomes, so it cannot be raised by hand.
    """
    key = (task.recipe_id, task.slice, task.generation)
    if (event.recipe_id, event.slice, event.generation) != key:
        return "something else was measured than what was asked for"
    if event.components is None:
        bare = event.fitness is None and not event.outcomes
        return None if bare else "there is a fitness without anything measured"
    counts = {d: (len(o.nll), len(o.right), len(o.solved)) for d, o in event.outcomes.items()}
    draws = event.scored or state.draws(event.slice, event.generation)
    if counts != {d: (len(x.windows), len(x.questions), len(x.problems)) for d, x in draws.items()}:
        return "other items were measured than those that were drawn"
    if wrong := early_stopping.unfounded(state, event):
        return wrong
    components = state.measure(event.recipe_id, event.outcomes)
    if components != event.components:
        return "the components are not those of the recorded outcomes"
    judged = state.judge(event.recipe_id, event.slice, event.generation, components, event.scored)
    if (event.reference, event.fitness) != judged:
        return "the fitness is not that of the recorded outcomes"
    return None
