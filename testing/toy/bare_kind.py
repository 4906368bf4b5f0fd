"""A kind of run that says nothing but what it must: settings, events, `due` and its work.

What is shown of it is what is shown of any kind.

    FORGE_KINDS=bare=testing.toy.bare_kind:Bare     makes it known; the tests set the variable
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from agent_forge.runs.kinds.decide import NextWork
from agent_forge.runs.kinds.kind import Kind
from testing.toy.toy_kind import Toy, ToyContext
from testing.toy.toy_state import Forked, Submitted, ToyConfig, ToyState, due

#: The value of FORGE_KINDS that makes the kind known.
KNOWN = "bare=testing.toy.bare_kind:Bare"


@dataclass
class BareState(ToyState):
    """State of a bare run."""

    kind: ClassVar[str] = "bare"


class Bare(Kind[BareState]):
    """Counting, without a word about it."""

    name = "bare"
    title = "a bare run"
    line = "count, and show nothing of one's own"
    config = ToyConfig
    submitted = Submitted
    forked = Forked
    state = BareState
    answers: ClassVar = Toy.answers

    def due(self, state: BareState) -> NextWork:
        """Return what there is to do after `started`."""
        return due(state)

    def context(self, state: BareState, cache: Any) -> ToyContext:
        """Return the work on the run's tasks."""
        return ToyContext(state)
