"""Tasks: what a run needs done in the world. Each has a key, the last part of its event's key."""

from __future__ import annotations

from dataclasses import dataclass

from evaluation.data.slices import Slice
from evomerge.recipes.recipe import Merge
from evomerge.search.proposals import Proposal


@dataclass(frozen=True)
class Start:
    """Read sources and data, pin the profile."""

    key = "start"


@dataclass(frozen=True)
class Measure:
    """Measure speed and memory of the architecture, once."""

    key = "profile"


@dataclass(frozen=True)
class BuildBaseline:
    """Build a static merge to compare with."""

    name: str
    recipe: Merge

    @property
    def key(self) -> str:
        """The task's name, and the last part of its event's idempotency key."""
        return f"baseline/{self.name}"


@dataclass(frozen=True)
class ChooseLayers:
    """Measure layer fitness for a frankenmerge whose layers are open."""

    generation: int
    proposal: Proposal

    @property
    def key(self) -> str:
        """The task's name, and the last part of its event's idempotency key."""
        return f"layers/{self.generation}/{self.proposal.slot}"


@dataclass(frozen=True)
class Build:
    """Build a candidate."""

    generation: int
    proposal: Proposal

    @property
    def key(self) -> str:
        """The task's name, and the last part of its event's idempotency key."""
        return f"build/{self.generation}/{self.proposal.slot}"


@dataclass(frozen=True)
class Evaluate:
    """Measure a model on a draw of a slice."""

    recipe_id: str
    slice: Slice
    generation: int | None

    @property
    def key(self) -> str:
        """The task's name, and the last part of its event's idempotency key."""
        drawn = "all" if self.generation is None else self.generation
        return f"evaluate/{self.slice}/{drawn}/{self.recipe_id}"


Task = Start | Measure | BuildBaseline | ChooseLayers | Build | Evaluate
