"""Capabilities of a kind of run: groups of questions that its class does not answer itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from agent_forge.runs import kinds
from agent_forge.runs.kinds.state import State

S = TypeVar("S", bound=State)
#: A process's weight cache; its class (`weights.storage.weight_cache.Artifacts`) is of a room above.
Cache: TypeAlias = Any


@dataclass(frozen=True)
class Capability(Generic[S]):
    """A group of a kind's answers, each with a default; a kind with others has a subclass of it."""

    #: The kind that it belongs to.
    kind: kinds.AnyKind
