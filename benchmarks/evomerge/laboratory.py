"""Runs of the search alone: the real `decide`, with answers from a world and nothing stored.

A world answers tasks as workers do, with measured or invented outcomes. `search` runs a strategy
until its budget of items is spent, and returns after how many items each champion was found. The
measurements that every strategy needs once (sources on both slices) count too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent_forge.evaluation.data.outcomes import Draws, Outcomes, Pool
from agent_forge.evaluation.data.slices import Slice
from agent_forge.events import Event
from agent_forge.evomerge.config import EvoMergeConfig, parse
from agent_forge.evomerge.fitness import composite
from agent_forge.evomerge.fitness.composite import Components, Fitness, Reference, Weighting
from agent_forge.evomerge.recipes.recipe import Recipe
from agent_forge.evomerge.recipes.tensor_groups import choose
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run import state as run_budget
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
from agent_forge.evomerge.search.strategy import SourceFamily
from agent_forge.runs.kinds.decide import Start, decide

#: Slices on which sources are measured before a search.
SLICES: tuple[Slice, ...] = ("search", "selection")
#: Items spent → champion.
Curve = list[tuple[int, str]]


class World(Protocol):
    """Interface of a search problem: models, items, and outcomes of recipes."""

    name: str

    @property
    def family(self) -> SourceFamily:
        """Base and sources."""
        ...

    @property
    def settings(self) -> dict[str, object]:
        """Settings of every strategy: sizes of draws, weights of the fitness."""
        ...

    @property
    def pools(self) -> dict[Slice, dict[str, Pool]]:
        """Slice → domain → pool of items."""
        ...

    @property
    def started(self) -> events.Started:
        """The event of a run's start."""
        ...

    def outcomes(
        self, recipe: Recipe, known: Mapping[str, Recipe], draws: Draws, slice_: Slice
    ) -> Outcomes:
        """Return the outcomes of a recipe's model on these items."""
        ...

    def sketch(self, recipe: Recipe, known: Mapping[str, Recipe]) -> str:
        """Return the sketch of a model's task vector."""
        ...

    def gains(self, recipe: Recipe, known: Mapping[str, Recipe]) -> tuple[tuple[float, ...], ...]:
        """Return the layer fitness of a frankenmerge whose layers are not chosen yet."""
        ...


@dataclass
class Laboratory:
    """A world, with the outcomes on whole slices, so that none of them is measured twice."""

    world: World
    whole: dict[tuple[str, Slice], Outcomes] = field(default_factory=dict)
    known: dict[str, Recipe] = field(default_factory=dict)

    def search(self, seed: int, budget: int, **settings: object) -> Curve:
        """Run a search; return its champions and the items spent when each was found.

        `settings` include the strategy.
        """
        config = parse(
            {
                **self.world.settings,
                "seed": seed,
                "generations": 10_000,
                "convergence_patience": 0,
                "max_items": budget,
                **settings,
            }
        )
        state, curve = RunState(), Curve()
        state.take(_submitted(config))
        while state.converged is None:
            decision = decide(state)
            assert not state.failed, state.failed
            for new in decision.facts:
                state.take(new.event)
                if isinstance(new.event, events.ChampionChanged):
                    curve.append((state.spent.items, new.event.recipe_id))
            for task in decision.tasks:
                state.take(self.answer(task, state))
        self.known |= state.recipes
        return curve

    def answer(self, task: Task, state: RunState) -> Event:
        """Return the event that a worker would append for the task."""
        match task:
            case Start():
                assert state.submitted
                version = current(state.submitted.config)
                return self.world.started.model_copy(update={"strategy": version})
            case MeasureCost():
                speed = events.Speed(tokens_per_second=1, spread=0, latency_seconds=1, peak_bytes=None)
                return events.Profiled(seconds=0.0, speed=speed)
            case BuildBaseline():
                return events.BaselineBuilt(name=task.name, **self._built(task.recipe, state))
            case ChooseLayers():
                return self._layers(task, state)
            case Build():
                return self._candidate(task, state)
            case Evaluate():
                return self._evaluated(task, state)

    def _built(self, recipe: Recipe, state: RunState) -> dict[str, Any]:
        known = {**state.recipes, recipe.id: recipe}
        return {
            "recipe_id": recipe.id,
            "recipe": recipe,
            "digest": recipe.id,
            "sketch": self.world.sketch(recipe, known),
            "seconds": 0.0,
        }

    def _candidate(self, task: Build, state: RunState) -> Event:
        proposal = task.proposal
        fields: dict = {
            "generation": task.generation,
            "slot": proposal.slot,
            **self._built(proposal.recipe, state),
        }
        return events.candidate(proposal.kind, proposal.parents, **fields)

    def _layers(self, task: ChooseLayers, state: RunState) -> Event:
        own = task.proposal.with_layers((0,) * self.world.family.blocks).pipeline
        assert own is not None
        scores = self.world.gains(own, {**state.recipes, own.id: own})
        return events.LayersChosen(
            generation=task.generation,
            slot=task.proposal.slot,
            proposal=task.proposal.recipe.id,
            measure="benchmark",
            scores=scores,
            layers=choose(scores),
            seconds=0.0,
        )

    def _evaluated(self, task: Evaluate, state: RunState) -> events.Evaluated:
        draws = state.draws(task.slice, task.generation)
        recipe = state.recipes[task.recipe_id]
        seen = self.seen(recipe, state.recipes, draws, task.slice, task.generation is None)
        measured = state.measure(task.recipe_id, seen)
        best, fitness = state.judge(task.recipe_id, task.slice, task.generation, measured)
        return events.Evaluated(
            recipe_id=task.recipe_id,
            slice=task.slice,
            generation=task.generation,
            outcomes=seen if measured else {},
            components=measured,
            reference=best,
            fitness=fitness,
            why_none=None if measured else "overflow",
            seconds=0.0,
        )

    def seen(
        self, recipe: Recipe, known: Mapping[str, Recipe], draws: Draws, slice_: Slice, whole: bool
    ) -> Outcomes:
        """Return a recipe's outcomes on a draw; those of whole slices are measured only once."""
        if not whole:
            return self.world.outcomes(recipe, known, draws, slice_)
        key = (recipe.id, slice_)
        if key not in self.whole:
            self.whole[key] = self.world.outcomes(recipe, known, draws, slice_)
        return self.whole[key]

    # ---- searches outside of the strategies -----------------------------------------------

    def state(self, seed: int) -> RunState:
        """Return the state of a run that has started, for draws and references."""
        config = parse({**self.world.settings, "strategy": "auto", "seed": seed})
        state = RunState()
        state.take(_submitted(config))
        state.take(self.world.started)
        self.known |= state.recipes
        return state

    def opening(self, state: RunState) -> int:
        """Measure the sources on both slices; return the number of items that this took."""
        spent = 0
        for slice_ in SLICES:
            for id_ in self.world.family.sources:
                event = self._evaluated(Evaluate(id_, slice_, None), state)
                state.take(event)
                spent += run_budget.items(event.outcomes)
        return spent

    def score(
        self, recipe: Recipe, state: RunState, slice_: Slice, generation: int | None
    ) -> tuple[float, int]:
        """Return a model's fitness on a draw as in a run, and the number of its items."""
        state.recipes[recipe.id] = self.known[recipe.id] = recipe
        event = self._evaluated(Evaluate(recipe.id, slice_, generation), state)
        score = event.fitness.scalar if event.fitness else float("-inf")
        return score, run_budget.items(event.outcomes)

    # ---- the test slice -------------------------------------------------------------------

    def test(self, recipe: Recipe, known: Mapping[str, Recipe]) -> Fitness:
        """Return a model's fitness on the test slice, relative to the best source there."""
        weighting = Weighting.model_validate(self.world.settings["fitness_weights"])
        state = RunState()
        state.take(_submitted(parse({"strategy": "elite-loser"})))
        state.take(self.world.started)
        draws = state.draws("test", None)
        cost = self.world.started.cost
        own = self.seen(recipe, known, draws, "test", True)
        measured = composite.components(own, cost.flops_per_token, cost.bytes)
        assert measured
        return composite.fitness(measured, self.reference(draws, state), weighting)

    def reference(self, draws: Draws, state: RunState) -> Reference:
        """Return the best source's value of each component on the test slice."""
        return composite.reference(self._sources(draws, state))

    def ceiling(self) -> float:
        """Return the test quality if the best source of each domain answered that domain.

        Perplexity and accuracy each use their own best source. No merge of these sources is
        expected to exceed this quality.
        """
        state = self.state(0)
        draws = state.draws("test", None)
        found = self._sources(draws, state)
        rates = [min(math.log(c.domains[d]) for c in found) for d in found[0].domains]
        hits = [max(c.accuracies[d] for c in found) for d in found[0].accuracies]
        ideal = found[0].model_copy(
            update={
                "perplexity": math.exp(math.fsum(rates) / len(rates)),
                "accuracy": math.fsum(hits) / len(hits),
            }
        )
        weighting = Weighting.model_validate(self.world.settings["fitness_weights"])
        return composite.fitness(ideal, composite.reference(found), weighting).quality

    def _sources(self, draws: Draws, state: RunState) -> list[Components]:
        """Return the components of each source on the test slice."""
        cost, found = self.world.started.cost, []
        for id_ in self.world.family.sources:
            seen = self.seen(state.recipes[id_], state.recipes, draws, "test", True)
            measured = composite.components(seen, cost.flops_per_token, cost.bytes)
            assert measured
            found.append(measured)
        return found


def _submitted(config: EvoMergeConfig) -> events.Submitted:
    reference = events.ModelReference(name="x", path="x")
    return events.Submitted(
        run="r", owner="b", config=config, sources=(reference,) * 3, base=reference, data=()
    )
