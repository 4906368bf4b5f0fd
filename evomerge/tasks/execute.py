"""Carry out one task of a run; the result is an event."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from agent_forge.evaluation.autotune import measure
from agent_forge.evaluation.data.outcomes import Draws, Outcomes
from agent_forge.evaluation.evaluate import EvaluationResult, Watch, evaluate
from agent_forge.events import Event, failpoints
from agent_forge.evomerge.merging.builder import not_finite
from agent_forge.evomerge.merging.layer_fitness import MEASURE, swap_gains
from agent_forge.evomerge.merging.sketch import sketch
from agent_forge.evomerge.recipes.recipe import Recipe, path
from agent_forge.evomerge.recipes.tensor_groups import choose
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.rules import early_stopping
from agent_forge.evomerge.run.tasks import (
    Build,
    BuildBaseline,
    ChooseLayers,
    Evaluate,
    MeasureCost,
    Task,
)
from agent_forge.evomerge.tasks.context import MergeContext
from agent_forge.runs.errors import NotFiniteError
from agent_forge.runs.kinds.decide import Start
from agent_forge.weights import pieces
from agent_forge.weights.folders.checkpoint import digest


class Context(MergeContext):
    """The run context whose tasks this module carries out."""

    def carry_out(self, task: Task) -> Event:
        """Return the event of a task, after doing it; append nothing. Raises the work's errors."""
        return carry_out(task, self)

    def share(self, task: Task, tasks: Sequence[Task]) -> Sequence[Task]:
        """Return the tasks to do together: those that build models, or `task` alone."""
        if not isinstance(task, Build | BuildBaseline):
            return [task]
        rest = [t for t in tasks if isinstance(t, Build | BuildBaseline) and t.key != task.key]
        return [task, *rest][: self.together]

    def prepare(self, tasks: Sequence[Task]) -> None:
        """Build ahead, in one pass over the sources, what the tasks build."""
        builds = [task for task in tasks if isinstance(task, Build | BuildBaseline)]
        self.build_ahead([b.proposal.recipe if isinstance(b, Build) else b.recipe for b in builds])


def carry_out(task: Task, bench: MergeContext) -> Event:
    """Return the event of a task, after doing it; append nothing. Raises the work's errors."""
    match task:
        case Start():
            return bench.started()
        case MeasureCost():
            return _measure(bench)
        case BuildBaseline():
            return events.BaselineBuilt(name=task.name, **_build(task.recipe, bench))
        case ChooseLayers():
            return _choose_layers(task, bench)
        case Build():
            return _build_candidate(task, bench)
        case Evaluate():
            return _evaluate(task, bench)


def _measure(bench: MergeContext) -> Event:
    began = time.perf_counter()
    bench.resident.load(bench.origin)
    most = max(len(p.windows) for domains in bench.packed.values() for p in domains.values())
    speed = measure(bench.resident, bench.context, most=most)
    return events.Profiled(seconds=time.perf_counter() - began, speed=speed)


def _build(recipe: Recipe, bench: MergeContext) -> dict:
    """Build a recipe and cache its weights; return {field: value} that the events of builds share."""
    began = time.perf_counter()
    weights, ahead = bench.build(recipe)
    failpoints.hit("build-computed")
    weights_digest = digest(weights)
    described = {
        "recipe_id": recipe.id,
        "recipe": recipe,
        "digest": weights_digest,
        "sketch": sketch(weights, bench.builder.origin(recipe, bench.origin)),
    }
    bench.artifacts.put(weights_digest, weights)
    failpoints.hit("build-stored")
    return {**described, "seconds": ahead + time.perf_counter() - began}


def _build_candidate(task: Build, bench: MergeContext) -> Event:
    proposal = task.proposal
    fields = {"generation": task.generation, "slot": proposal.slot, **_build(proposal.recipe, bench)}
    return events.candidate(proposal.kind, proposal.parents, **fields)


def _choose_layers(task: ChooseLayers, bench: MergeContext) -> Event:
    """Return the event of chosen layers: build two stages, measure the gain of each swap."""
    began = time.perf_counter()
    pipeline = task.proposal.pipeline
    assert pipeline is not None
    assert bench.state.started
    proposal_pipeline = task.proposal.with_layers((0,) * bench.state.started.blocks).pipeline
    assert proposal_pipeline is not None
    merged = bench.builder.build(proposal_pipeline)
    inputs = [bench.weights(id_) for id_ in pipeline.inputs]
    gains = swap_gains(bench.resident, merged, inputs, bench.packed["train"])
    failpoints.hit("layers-scored")
    return events.LayersChosen(
        generation=task.generation,
        slot=task.proposal.slot,
        proposal=task.proposal.recipe.id,
        measure=MEASURE,
        scores=tuple(map(tuple, gains)),
        layers=choose(gains),
        seconds=time.perf_counter() - began,
    )


def _evaluate(task: Evaluate, bench: MergeContext) -> Event:
    state = bench.state
    assert state.started
    began = time.perf_counter()
    weights = bench.weights(task.recipe_id)
    draws = state.draws(task.slice, task.generation)
    failpoints.hit("evaluate-loaded")
    bad = not_finite(weights)
    data = bench.packed[task.slice]
    evaluation = EvaluationResult({})
    if not bad:
        taken = path(state.recipes[task.recipe_id], state.recipes)
        bench.resident.load(weights, None if taken is None else len(taken.steps))
        watch = _watch(task, bench)
        judge = bench.judge
        with pieces.divided():
            evaluation = evaluate(bench.resident, data, draws, judge, watch)
    failpoints.hit("evaluate-scored")
    outcomes = evaluation.outcomes
    measured = None if bad else state.measure(task.recipe_id, outcomes)
    best, fitness = state.judge(
        task.recipe_id, task.slice, task.generation, measured, evaluation.scored
    )
    if state.is_source(task.recipe_id) and measured is None:
        raise NotFiniteError("a source's log-likelihood on this data is NaN or Inf")
    return events.Evaluated(
        recipe_id=task.recipe_id,
        slice=task.slice,
        generation=task.generation,
        outcomes=outcomes if measured else {},
        components=measured,
        reference=best,
        fitness=fitness,
        why_none=None if measured else _why_none(bad, outcomes),
        stopped=evaluation.stopped,
        scored=evaluation.scored,
        seconds=time.perf_counter() - began,
    )


def _watch(task: Evaluate, bench: MergeContext) -> Watch | None:
    """Return the watch that may stop an evaluation early; None if it is never stopped.

    Only candidates of a search are watched. Evaluations that are compared on whole slices are not.
    """
    state = bench.state
    gate = early_stopping.rules(state, task.recipe_id, task.slice, task.generation)
    if gate is None:
        return None
    parts = early_stopping.blocks(state, task.slice, task.generation)

    def reason(sofar: Outcomes, scored: Draws) -> str | None:
        return early_stopping.reason(state, gate, task.slice, sofar, scored, len(parts) - 1)

    return Watch(parts, reason)


def _why_none(tensor: str | None, outcomes: Outcomes) -> str:
    if tensor:
        return f"tensor {tensor} holds NaN or Inf"
    bad = [d for d in sorted(outcomes) if not all(map(math.isfinite, outcomes[d].nll))]
    if bad:
        return f"log-likelihood is NaN or Inf in {', '.join(bad)}"
    return "perplexity overflows"
