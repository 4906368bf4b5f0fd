"""Dry run: counts the work of a run by carrying out its decisions with invented answers.

Pure. Every strategy decides as in a real run; the amount of work hardly depends on the answers.
Plateaus and early stopping are switched off, so a real run hardly does more. The number of chosen
layers, the size of a front and whether one more generation fits a budget may depend on the answers.
Budgets in hours are ignored.
"""

from __future__ import annotations

import base64
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from agent_forge.evaluation.data.outcomes import DomainOutcomes, Draw, Outcomes
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evomerge.recipes.recipe import Recipe
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.tasks import Build, BuildBaseline, ChooseLayers, Evaluate, Task
from agent_forge.runs import keys
from agent_forge.runs.kinds.decide import decide

#: Tokens of an invented window.
_TOKENS = 100


@dataclass
class WorkTally:
    """The counted work: what a run would do at most."""

    #: Kind of task → how many.
    tasks: Counter[str] = field(default_factory=Counter)
    #: windows, questions, problems → how many are scored, those of the final report included.
    items: Counter[str] = field(default_factory=Counter)
    generations: int = 0
    #: Why the search ends.
    reason: str = ""


def rehearse(submitted: events.Submitted, started: events.Started) -> WorkTally:
    """Return the `WorkTally` of a run, from its submission and from what its start found."""
    off = {"convergence_patience": 0, "gate_perplexity": 0.0, "stop_error": 0.0}
    config = submitted.config.model_copy(update=off)
    state, tally = RunState(), WorkTally()
    state.take(submitted.model_copy(update={"config": config}))
    state.take(started)
    tally.tasks["start"] += 1
    while True:
        decision = decide(state)
        for new in decision.facts:
            state.take(new.event)
        tested = False
        for task in decision.tasks:
            tally.tasks[_kind(task)] += 1
            state.take(_answer(task, state, tally))
            tested |= (
                isinstance(task, Evaluate) and task.recipe_id == state.champion and task.slice == "test"
            )
        if tested or state.failed:
            break
    tally.generations = len(state.generations)
    tally.reason = state.converged.reason if state.converged else "failed"
    return tally


def _kind(task: Task) -> str:
    match task:
        case Build() | BuildBaseline():
            return "build"
        case ChooseLayers():
            return "layers"
        case Evaluate():
            return f"evaluate {task.slice}"
        case _:
            return task.key


def _answer(task: Task, state: RunState, tally: WorkTally):
    match task:
        case BuildBaseline():
            return events.BaselineBuilt(name=task.name, **_built(task.recipe))
        case Build():
            proposal = task.proposal
            place = {"generation": task.generation, "slot": proposal.slot}
            return events.candidate(proposal.kind, proposal.parents, **place, **_built(proposal.recipe))
        case ChooseLayers():
            assert state.started
            blocks, inputs = state.started.blocks, len(state.started.sources)
            return events.LayersChosen(
                generation=task.generation,
                slot=task.proposal.slot,
                proposal=task.proposal.recipe.id,
                measure="",
                seconds=0.0,
                scores=((0.0,) * inputs,) * blocks,
                layers=(0,) * blocks,
            )
        case Evaluate():
            return _evaluated(task, state, tally)
        case _:
            speed = events.Speed(tokens_per_second=1, spread=0, latency_seconds=1, peak_bytes=None)
            return events.Profiled(seconds=0.0, speed=speed)


def _built(recipe: Recipe) -> dict:
    values = keys.generator("rehearsal", recipe.id).standard_normal(8).astype("<f4")
    sketch = base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
    return {
        "recipe_id": recipe.id,
        "recipe": recipe,
        "digest": recipe.id,
        "sketch": sketch,
        "seconds": 0.0,
    }


def _evaluated(task: Evaluate, state: RunState, tally: WorkTally) -> events.Evaluated:
    assert state.started
    draws = state.draws(task.slice, task.generation)
    outcomes: Outcomes = {
        d: _outcomes(task.recipe_id, task.slice, d, draw) for d, draw in draws.items()
    }
    for draw in draws.values():
        tally.items["windows"] += len(draw.windows)
        tally.items["questions"] += len(draw.questions)
        tally.items["problems"] += len(draw.problems)
    measured = state.measure(task.recipe_id, outcomes)
    best, fitness = state.judge(task.recipe_id, task.slice, task.generation, measured)
    return events.Evaluated(
        recipe_id=task.recipe_id,
        slice=task.slice,
        generation=task.generation,
        outcomes=outcomes,
        components=measured,
        reference=best,
        fitness=fitness,
        seconds=0.0,
    )


def _outcomes(recipe_id: str, slice_: Slice, domain: str, draw: Draw) -> DomainOutcomes:
    rng = keys.generator("rehearsal", recipe_id, slice_, domain)
    windows, questions, problems = len(draw.windows), len(draw.questions), len(draw.problems)
    return DomainOutcomes(
        nll=tuple(float(x) for x in _TOKENS * rng.uniform(1.0, 1.2, windows)),
        tokens=(_TOKENS,) * windows,
        hits=(1,) * windows,
        bytes=(_TOKENS,) * windows,
        right=tuple(int(x) for x in rng.integers(0, 2, questions)),
        chance=(0.25,) * questions,
        solved=tuple(float(x) for x in rng.uniform(0, 1, problems)),
    )
