"""Scores of models from a run's log: outcomes, components, fitness relative to the best source.

Pure.
"""

from __future__ import annotations

from agent_forge.evaluation.data import outcomes
from agent_forge.evaluation.data.outcomes import Draws, Outcomes
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evomerge.config import EvoMergeConfig
from agent_forge.evomerge.fitness import composite
from agent_forge.evomerge.fitness.composite import Components, Fitness, Reference
from agent_forge.evomerge.recipes.recipe import Recipe, blocks
from agent_forge.evomerge.run import events
from agent_forge.weights.cost import Cost

#: (recipe id, slice, generation of the draw or None for the whole slice).
EvaluationKey = tuple[str, Slice, int | None]


class EvaluationScores:
    """The part of a run's state that reads evaluations."""

    submitted: events.Submitted | None
    started: events.Started | None
    evaluations: dict[EvaluationKey, events.Evaluated]
    recipes: dict[str, Recipe]

    def cost(self, recipe_id: str) -> Cost:
        """Return a model's `Cost`, by arithmetic; it varies only with depth, which paths change."""
        assert self.started
        usual = self.started.blocks
        more = blocks(self.recipes[recipe_id], self.recipes, usual) - usual
        if not more:
            return self.started.cost
        assert self.started.block_cost
        return self.started.cost.with_blocks(more, self.started.block_cost)

    def measure(self, recipe_id: str, model_outcomes: Outcomes) -> Components | None:
        """Return the `Components` of a model's outcomes; None if they are not finite."""
        assert self.submitted
        cost, skills = self.cost(recipe_id), self.submitted.config.skills
        return composite.components(model_outcomes, cost.flops_per_token, cost.bytes, skills)

    def settings(self, generation: int) -> EvoMergeConfig:
        """Return the settings that propose a generation's candidates and draw its items."""
        raise NotImplementedError

    def draws(self, slice_: Slice, generation: int | None) -> Draws:
        """Return {domain: items to score}: the generation's draw of a slice, or the whole slice."""
        assert self.started
        pools = self.started.pools[slice_]
        if generation is None:
            return outcomes.whole(pools)
        config = self.settings(generation)
        sizes = outcomes.Sizes(
            windows=config.search_windows,
            questions=config.search_questions,
            problems=config.search_problems,
        )
        return outcomes.draw(pools, sizes, config.seed, "draw", slice_, generation)

    def components(self, key: EvaluationKey) -> Components | None:
        """Return a model's `Components`; None if it was not measured, or if a value was not finite.

        A draw's are computed from the whole slice's outcomes if only the whole slice was measured.
        """
        event = self.evaluations.get(key)
        if event is not None:
            return event.components
        model_outcomes = self.outcomes(key)
        return None if model_outcomes is None else self.measure(key[0], model_outcomes)

    def outcomes(self, key: EvaluationKey) -> Outcomes | None:
        """Return {domain: a model's outcomes, item by item}; None if it was not measured.

        The outcomes of a draw are taken from the whole slice if only the whole slice was measured.
        """
        recipe_id, slice_, generation = key
        if event := self.evaluations.get(key):
            return event.outcomes
        if event := self.evaluations.get((recipe_id, slice_, None)):
            return outcomes.pick(event.outcomes, self.draws(slice_, generation))
        return None

    def reference(
        self, slice_: Slice, generation: int | None, scored: Draws | None = None
    ) -> Reference | None:
        """Return the `Reference`: the sources' best value of each component; None without any.

        `scored` has the items that were scored, if they were fewer than the draw.
        """
        assert self.started
        assert self.submitted
        if scored is None:
            measures = [
                self.components((s.recipe_id, slice_, generation)) for s in self.started.sources
            ]
        else:
            every = self.sources_on(slice_, scored).values()
            measures = [
                self.measure(self.started.sources[0].recipe_id, source_outcomes)
                for source_outcomes in every
            ]
        components = [c for c in measures if c is not None]
        config = self.submitted.config
        every_domain = self.started.pools[slice_] if config.skills != "pooled" else {}
        domains = {*config.fitness_weights.domains, *every_domain}
        return composite.reference(components, domains) if components else None

    def sources_on(self, slice_: Slice, draws: Draws) -> dict[str, Outcomes]:
        """Return {source name: its outcomes on these items}, taken from the whole slice's."""
        assert self.started
        outcomes_by_name: dict[str, Outcomes] = {}
        for source in self.started.sources:
            if event := self.evaluations.get((source.recipe_id, slice_, None)):
                name = source.name  # two folders may have the same name
                name += f" {source.recipe_id[:12]}" if name in outcomes_by_name else ""
                outcomes_by_name[name] = outcomes.pick(event.outcomes, draws)
        return outcomes_by_name

    def is_source(self, recipe_id: str) -> bool:
        """Return True if the recipe is one of the run's sources."""
        assert self.started
        return recipe_id in {s.recipe_id for s in self.started.sources}

    def judge(
        self,
        recipe_id: str,
        slice_: Slice,
        generation: int | None,
        measured: Components | None,
        scored: Draws | None = None,
    ) -> tuple[Reference | None, Fitness | None]:
        """Return (reference to judge a new measurement by or None, the measurement's fitness or None).

        Both are None for a source, which is measured before there is a reference. Its fitness
        follows from the log later.
        """
        assert self.submitted
        if self.is_source(recipe_id):
            return None, None
        best, config = self.reference(slice_, generation, scored), self.submitted.config
        if measured is None or best is None:
            return best, None
        return best, _fitness(config, measured, best)

    def fitness(self, key: EvaluationKey) -> Fitness | None:
        """Return an evaluation's `Fitness`, recorded or computed by the reference; None without one."""
        event = self.evaluations.get(key)
        if event is not None and event.fitness is not None:
            return event.fitness
        measured, best = self.components(key), self.reference(key[1], key[2])
        if measured is None or best is None or self.submitted is None:
            return None
        return _fitness(self.submitted.config, measured, best)


def _fitness(config: EvoMergeConfig, measured: Components, best: Reference) -> Fitness:
    """Return a model's fitness by the settings of its run."""
    weights, raw = config.fitness_weights, config.normalise == "none"
    return composite.fitness(measured, best, weights, raw=raw, skills=config.skills)
