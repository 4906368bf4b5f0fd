"""A kind of run whose panels are lines of 100,000 points, and of several seeds.

FORGE_KINDS=long=testing.toy.long_kind:Long     makes it known; the tests set the variable
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from agent_forge.runs.panels.panels import Axis, Lines, Panel, Series
from testing.toy.toy_kind import Toy, ToyView
from testing.toy.toy_state import ToyState

#: The value of FORGE_KINDS that makes the kind known.
KNOWN = "long=testing.toy.long_kind:Long"
POINTS, SPIKE = 100_000, 70_001
_STEP, _LOSS = Axis(name="step", whole=True), Axis(name="loss", better="down")


@dataclass
class LongState(ToyState):
    """State of a run that shows long lines."""

    kind: ClassVar[str] = "long"


class LongView(ToyView):
    """The views of a run with long lines."""

    def panels(self, state: ToyState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return a line of 100,000 points with one spike, and two arms of five seeds."""
        return [long(), seeded()]


class Long(Toy):
    """Counting, with panels that have nothing to do with it."""

    name = "long"
    title = "a run with long lines"
    line = "count, and show lines of 100,000 points and of several seeds"
    state = LongState
    view = cached_property(LongView)


def long() -> Lines:
    """Return a line of 100,000 points: seven levels in turns, and one spike."""
    y = [1 + step % 7 / 100 for step in range(POINTS)]
    y[SPIKE] = 5
    series = Series(name="steps", x=tuple(range(POINTS)), y=tuple(y))
    says = "One point is high."
    return Lines(name="long", title="Long", says=says, x=_STEP, y=_LOSS, series=(series,))


def seeded() -> Lines:
    """Return two arms of five seeds, one of which is shorter and has a gap."""
    series = []
    for arm, rate in (("muon", 60.0), ("adamw", 90.0)):
        for seed in range(5):
            x = range(0, 200 if seed else 150, 2)
            y = [
                1.2 + 2 * math.exp(-step / rate) + 0.12 * math.sin(seed * 1.7 + step / 25) for step in x
            ]
            values = tuple(
                None if (seed, step) == (1, 100) else v for step, v in zip(x, y, strict=True)
            )
            series.append(Series(name=arm, seed=seed, x=tuple(x), y=values))
    says = "Muon falls faster."
    return Lines(name="seeds", title="Seeds", says=says, x=_STEP, y=_LOSS, series=tuple(series))
