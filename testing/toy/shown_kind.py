"""A kind of run that shows a panel of every kind, for tests of those who draw panels.

FORGE_KINDS=shown=testing.toy.shown_kind:Shown     makes it known; the tests set the variable
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from agent_forge.runs.panels.panels import Panel
from testing.panels import EVERY
from testing.toy.toy_kind import Toy, ToyView
from testing.toy.toy_state import ToyState

#: The value of FORGE_KINDS that makes the kind known.
KNOWN = "shown=testing.toy.shown_kind:Shown"


@dataclass
class ShownState(ToyState):
    """State of a run that shows every panel."""

    kind: ClassVar[str] = "shown"


class ShownView(ToyView):
    """The views of a run with every panel."""

    def panels(self, state: ToyState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return one panel of every kind."""
        return list(EVERY.values())


class Shown(Toy):
    """Counting, with panels that have nothing to do with it."""

    name = "shown"
    title = "a run with every panel"
    line = "count, and show a panel of every kind"
    state = ShownState
    view = cached_property(ShownView)
