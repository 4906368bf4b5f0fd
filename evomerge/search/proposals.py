"""Proposals of a strategy, and the family of models that it proposes merges of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agent_forge.evomerge.recipes.recipe import Flow, Grouped, Mutate, Pipeline

Kind = Literal["seeded", "merged", "mutated", "sampled", "crossed"]


@dataclass(frozen=True)
class Proposal:
    """A recipe proposed for a slot. The layers of a frankenmerge may still be open."""

    slot: int
    kind: Kind
    recipe: Pipeline | Grouped | Flow | Mutate
    parents: tuple[str, ...] = ()

    @property
    def pipeline(self) -> Pipeline | Grouped | Flow | None:
        """The merge that the recipe itself states; None for a mutation without one."""
        return self.recipe.pipeline if isinstance(self.recipe, Mutate) else self.recipe

    def with_layers(self, layers: tuple[int, ...]) -> Proposal:
        """Return the proposal with these layers in place of its open ones."""
        pipeline = self.pipeline
        assert isinstance(pipeline, Pipeline)
        genes = pipeline.genes.model_copy(update={"layers": layers})
        done = pipeline.model_copy(update={"genes": genes})
        if isinstance(self.recipe, Mutate):
            done = self.recipe.model_copy(update={"pipeline": done})
        return Proposal(self.slot, self.kind, done, self.parents)


@dataclass(frozen=True)
class SourceFamily:
    """The sources' recipe ids, the base that they are merged on, and their number of blocks."""

    sources: tuple[str, ...]
    base: str
    blocks: int
