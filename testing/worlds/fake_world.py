"""A world without torch: tasks are answered by invented, keyed results; envelopes are real rows.

What a candidate's score is follows from its recipe's id alone, so that two worlds that answer in
another order give the same answers.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Sequence

import numpy as np

from agent_forge.evaluation.data.outcomes import DomainOutcomes, Draws, Outcomes, Pool, joined, pick
from agent_forge.events import Envelope, Event, New, chain
from agent_forge.evomerge.config import EvoMergeConfig, fitting, parse
from agent_forge.evomerge.recipes.recipe import Recipe, Source
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.rules import early_stopping
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.tasks import (
    Build,
    BuildBaseline,
    ChooseLayers,
    Evaluate,
    MeasureCost,
    Task,
)
from agent_forge.evomerge.search import current
from agent_forge.runs import keys
from agent_forge.runs.kinds.decide import NextWork, Start, decide
from agent_forge.weights.cost import Cost, Speed

RUN = "run-1"
BLOCKS = 3
POOLS = {
    "code": Pool(windows=6, questions=4, problems=5, question_grades=(1, 3), problem_grades=(2, 3)),
    "math": Pool(windows=5, questions=0),
}
SLICES = ("train", "search", "selection", "test")
COST = Cost(flops_per_token=1e6, bytes=1e6)
BLOCK_COST = Cost(flops_per_token=2e5, bytes=2e5)

#: Recipe id → nats a token, or None for NaN.
Quality = Callable[[str], float | None]
#: Recipe id → sketch.
Sketcher = Callable[[str], str]


def quality(recipe_id: str) -> float:
    """Return between 1.5 and 2.5 nats a token, by the id."""
    return 1.5 + keys.key("quality", recipe_id) / 2**128


def far_apart(recipe_id: str) -> str:
    """Return a different sketch for every id: standard normal in 16 dimensions."""
    values = keys.generator("sketch", recipe_id).standard_normal(16)
    return base64.b64encode(values.astype("<f4").tobytes()).decode()


def all_alike(recipe_id: str) -> str:
    """Return sketches that are far apart for the sources and equal for all candidates."""
    sources = {source.id for source in SOURCES}
    return far_apart(recipe_id if recipe_id in sources else "same")


def sha(text: str) -> str:
    """Return a digest of an invented text."""
    return hashlib.sha256(text.encode()).hexdigest()


BASE, *SOURCES = (Source(digest=sha(name)) for name in ("base", "a", "b", "c"))


def small(**changes: object) -> EvoMergeConfig:
    """Return settings of a small run: four candidates, two generations after the first, no plateau."""
    usual: dict[str, object] = {
        "strategy": "elite-loser",
        "population_size": 4,
        "elite_size": 1,
        "generations": 2,
        "convergence_patience": 0,
        "search_windows": 3,
        "search_questions": 2,
        "seed": 3,
        "device": "cpu",
    }
    return parse({**fitting(usual, changes.get("strategy", "elite-loser")), **changes})


class World:
    """A run's log, its state, and a fake worker that answers its tasks."""

    def __init__(
        self,
        config: EvoMergeConfig | None = None,
        quality: Quality = quality,
        sketcher: Sketcher = far_apart,
        quarantine: events.Quarantine = "fail",
        skill: Callable[[str], float] | None = None,
    ) -> None:
        self.quality, self.sketcher, self.skill = quality, sketcher, skill
        self.rows: list[Envelope] = []
        self.state = RunState()
        references = tuple(events.ModelReference(name=n, path=f"/models/{n}") for n in ("a", "b", "c"))
        submitted = events.Submitted(
            run=RUN,
            owner="ada",
            config=config or small(),
            sources=references,
            base=events.ModelReference(name="base", path="/models/base"),
            data=(),
            quarantine=quarantine,
        )
        self.append([New(submitted, f"{RUN}/submitted")])

    def append(self, new: Sequence[New]) -> None:
        """Record events as the store would, hash chain included, and fold them."""
        for number, one in enumerate(new):
            head = self.rows[-1].hash if self.rows else chain.GENESIS
            values = {
                "stream": f"evomerge/{RUN}",
                "version": len(self.rows) + 1,
                "event_id": sha(one.key),
                "type": one.event.type,
                "schema": one.event.schema_version,
                "data": one.event.payload(),
                "key": one.key,
                "actor": "ada",
                "causation": sha(new[0].key) if number else None,
                "correlation": None,
                "recorded_at": "2026-01-01T00:00:00.000000+00:00",
                "code_version": "test",
                "prev_hash": head,
            }
            row = Envelope(position=len(self.rows) + 1, **values, hash=chain.link(values))
            self.rows.append(row)
            self.state.absorb([row])

    def complete(self, task: Task) -> None:
        """Record the answer to a task."""
        self.append([New(self.answer(task), f"{RUN}/{task.key}")])

    def fail(self, task: str, attempt: int) -> None:
        """Record that a task raised."""
        event = events.TaskFailed(task=task, attempt=attempt, error="ValueError: broken")
        self.append([New(event, f"{RUN}/{task}/failed/{attempt}")])

    def die(self, task: str) -> None:
        """Record that a task's process died."""
        before = self.state.deaths.get(task)
        attempt = before.attempt + 1 if before else 1
        event = events.TaskDied(task=task, attempt=attempt, how="killed by signal 9")
        self.append([New(event, f"{RUN}/{task}/died/{attempt}")])

    def poison(self, *tasks: str) -> RunState:
        """Carry the run to its end; the named tasks kill every worker that tries them."""
        for _ in range(400):
            if self.state.ended:
                return self.state
            decision = decide(self.state)
            if decision.facts:
                self.append(decision.facts)
            for task in decision.tasks:
                self.die(task.key) if task.key in tasks else self.complete(task)
        raise AssertionError("the run does not end")

    def step(self, order: Callable[[list[Task]], Sequence[Task]] = list) -> NextWork:
        """Decide once and carry everything out; tasks in the given order. Returns the decision."""
        decision = decide(self.state)
        if decision.facts:
            self.append(decision.facts)
        else:
            for task in order(decision.tasks):
                self.complete(task)
        return decision

    def run(self, order: Callable[[list[Task]], Sequence[Task]] = list) -> RunState:
        """Carry the run to its end."""
        for _ in range(400):
            if self.state.ended:
                return self.state
            self.step(order)
        raise AssertionError("the run does not end")

    def run_until(self, stop: Callable[[RunState], bool]) -> RunState:
        """Carry the run on until `stop(state)`."""
        for _ in range(400):
            if stop(self.state):
                return self.state
            self.step()
        raise AssertionError("never came")

    # ---- answers ---------------------------------------------------------------------------

    def answer(self, task: Task) -> Event:
        """Return the event that a worker would append."""
        match task:
            case Start():
                return self._started()
            case MeasureCost():
                speed = Speed(tokens_per_second=1, spread=0, latency_seconds=1, peak_bytes=None)
                return events.Profiled(seconds=1.0, speed=speed)
            case BuildBaseline():
                return events.BaselineBuilt(name=task.name, **self._built(task.recipe))
            case ChooseLayers():
                pick = keys.key(task.key) % 3
                gains = tuple(1.0 if i == pick else 0.0 for i in range(3))
                return events.LayersChosen(
                    generation=task.generation,
                    slot=task.proposal.slot,
                    proposal=task.proposal.recipe.id,
                    measure="invented",
                    scores=((0.0, 0.0, 0.0), gains, (0.0, 0.0, 0.0)),
                    layers=(0, 1 + pick, 0),
                    seconds=1.0,
                )
            case Build():
                return self._candidate(task)
            case Evaluate():
                return self._evaluated(task)

    def _started(self) -> Event:
        records = [
            events.SourceRecord(
                name=name,
                recipe_id=source.id,
                digest=source.digest,
                sketch=self.sketcher(source.id),
                parameters=10,
            )
            for name, source in zip(("base", "a", "b", "c"), (BASE, *SOURCES), strict=True)
        ]
        profile = dict.fromkeys(
            ("device", "dtype", "attention", "machine", "torch", "transformers", "numpy"), "x"
        )
        assert self.state.submitted
        return events.Started.model_validate(
            {
                "sources": tuple(records[1:]),
                "base": records[0],
                "tied": True,
                "blocks": BLOCKS,
                "cost": COST,
                "block_cost": BLOCK_COST,
                "context": 8,
                "data_digest": sha("data"),
                "pools": dict.fromkeys(SLICES, POOLS),
                "profile": {**profile, "threads": 1, "batch_tokens": 1},
                "warnings": (),
                "strategy": current(self.state.submitted.config),
                "together": True,
                "many_replies": True,
            }
        )

    def _built(self, recipe: Recipe) -> dict:
        return {
            "recipe_id": recipe.id,
            "recipe": recipe,
            "digest": sha(recipe.id),
            "sketch": self.sketcher(recipe.id),
            "seconds": 1.0,
        }

    def _candidate(self, task: Build) -> Event:
        slot = task.proposal.slot
        fields = {"generation": task.generation, "slot": slot, **self._built(task.proposal.recipe)}
        return events.candidate(task.proposal.kind, task.proposal.parents, **fields)

    def _evaluated(self, task: Evaluate) -> Event:
        rate = self.quality(task.recipe_id)
        state = self.state
        draws = state.draws(task.slice, task.generation)
        seen: Outcomes = {}
        scored = stopped = None
        if rate is not None:
            share = self.skill(task.recipe_id) if self.skill else None
            whole = {d: observed(rate, task.slice, d, share) for d in draws}
            seen = pick(whole, draws)
            scored, stopped = self._stopped(task, whole)
            seen = pick(whole, scored) if scored else seen
        measured = None
        if seen:
            measured = state.measure(task.recipe_id, seen)
        best, fitness = state.judge(task.recipe_id, task.slice, task.generation, measured, scored)
        return events.Evaluated(
            recipe_id=task.recipe_id,
            slice=task.slice,
            generation=task.generation,
            outcomes=seen,
            components=measured,
            reference=best,
            fitness=fitness,
            why_none=None if measured else "tensor x holds NaN or Inf",
            stopped=stopped,
            scored=scored,
            seconds=1.0,
        )

    def _stopped(self, task: Evaluate, whole: Outcomes) -> tuple[Draws | None, str | None]:
        """Return the windows after which the evaluation ends early, and why, as a worker would."""
        state, slice_ = self.state, task.slice
        gate = early_stopping.rules(state, task.recipe_id, slice_, task.generation)
        parts = early_stopping.blocks(state, slice_, task.generation) if gate else []
        for number in range(1, len(parts)):
            assert gate
            scored = joined(parts[:number])
            looks = len(parts) - 1
            if why := early_stopping.reason(state, gate, slice_, pick(whole, scored), scored, looks):
                return scored, why
        return None, None


def observed(rate: float, slice_: str, domain: str, skill: float | None = None) -> DomainOutcomes:
    """Invent a whole slice: windows of 10 tokens around `rate` nats a token; better models hit more.

    `skill` is the share of hits instead: a model may then be good at one and bad at the other.
    """
    pool = POOLS[domain]
    hard = keys.generator("items", slice_, domain).normal(0.0, 0.1, pool.windows)
    share = math.exp(-rate) if skill is None else skill
    steps = [int(10 * share + (i + 0.5) / pool.windows) for i in range(pool.windows)]
    level = max(0, min(10, round(10 * share)))
    hits = (level,) * pool.windows if skill is None else tuple(min(10, n) for n in steps)
    return DomainOutcomes(
        nll=tuple(float(x) for x in 10 * (rate + np.asarray(hard))),
        tokens=(10,) * pool.windows,
        hits=hits,
        right=tuple(int(i % 2) for i in range(pool.questions)),
        chance=(0.25,) * pool.questions,
        bytes=(30,) * pool.windows,
        solved=tuple(float(i / 4 < 1 / rate) for i in range(pool.problems)),
    )
