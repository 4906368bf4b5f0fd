"""Tasks of a merging run: the work that it needs done outside of its log.

Each task has a key, which is the last part of its event's idempotency key.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent_forge.evaluation.data.slices import Slice
from agent_forge.evomerge.recipes.recipe import Merge
from agent_forge.evomerge.search.strategy import Proposal
from agent_forge.runs.kinds.decide import Start


@dataclass(frozen=True)
class MeasureCost:
    """Task: measure speed and memory of the architecture, once."""

    key = "profile"


@dataclass(frozen=True)
class BuildBaseline:
    """Task: build a fixed merge to compare with."""

    name: str
    recipe: Merge

    @property
    def key(self) -> str:
        """The task's name, and the last part of its event's idempotency key."""
        return f"baseline/{self.name}"


@dataclass(frozen=True)
class ChooseLayers:
    """Task: measure layer fitness for a frankenmerge whose layers are not chosen yet."""

    generation: int
    proposal: Proposal

    @property
    def key(self) -> str:
        """The task's name, and the last part of its event's idempotency key."""
        return f"layers/{self.generation}/{self.proposal.slot}"


@dataclass(frozen=True)
class Build:
    """Task: build a candidate."""

    generation: int
    proposal: Proposal

    @property
    def key(self) -> str:
        """The task's name, and the last part of its event's idempotency key."""
        return f"build/{self.generation}/{self.proposal.slot}"


@dataclass(frozen=True)
class Evaluate:
    """Task: measure a model on a generation's draw of a slice, or on the whole slice."""

    recipe_id: str
    slice: Slice
    generation: int | None

    @property
    def key(self) -> str:
        """The task's name, and the last part of its event's idempotency key."""
        drawn = "all" if self.generation is None else self.generation
        return f"evaluate/{self.slice}/{drawn}/{self.recipe_id}"


Task = Start | MeasureCost | BuildBaseline | ChooseLayers | Build | Evaluate
