"""Paths through layers as genes: data flow space in [0, 1]ⁿ. Pure.

Every block of the models has `repeats` places in a row, and every place two genes: whose block stands
there, if any, and what goes into it is multiplied by. Akiba et al. 2025 (see
`evomerge.merging.dataflow`) repeat all layers in a row and let an indicator switch each on; here
repeats stand beside the first, where a block finds something like the input that it was trained on.

    whose, first place    | none | the merge's            | a source's, one after the other |
                          0     .2                       .55                                1
    whose, other places   | none                          | the merge's | a source's        |
                          0                              .55           .75                  1

Both begin at .375, as far from "none" as from a source, which is the path of an ordinary model. Of
paths that come to more than `most` blocks the last repeats are left out; one that skips everything is
the ordinary one. Categories are intervals, so several points mean one path: `point` gives the middle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evomerge.recipes.recipe import Step

#: Where a place begins, in both genes' ranges.
START = 0.375
#: (none up to, the merge's up to) of the first place of a block and of the others.
FIRST, OTHER = (0.2, 0.55), (0.55, 0.75)
#: What scales are, on a logarithmic scale: 1 lies in the middle.
SCALE = (0.5, 2.0)


@dataclass(frozen=True)
class Paths:
    """The paths through a merge of so many blocks and its sources."""

    blocks: int
    sources: int
    repeats: int
    #: Blocks of a path at most.
    most: int

    @property
    def dimension(self) -> int:
        """How many genes a path has."""
        return 2 * self.blocks * self.repeats

    @property
    def names(self) -> tuple[str, ...]:
        """Of the genes, in order: "block 3 again whose"."""
        return tuple(
            f"block {block + 1}{' again' * place} {what}"
            for block in range(self.blocks)
            for place in range(self.repeats)
            for what in ("whose", "scale")
        )

    @property
    def straight(self) -> list[float]:
        """Every block of the merge, once."""
        return [START, 0.5] * (self.blocks * self.repeats)

    def steps(self, x: Sequence[float]) -> tuple[Step, ...]:
        """The path of a point."""
        found: list[tuple[bool, Step]] = []
        for number in range(self.blocks * self.repeats):
            block, place = divmod(number, self.repeats)
            model = self._model(x[2 * number], place)
            if model is not None:
                again = any(step.block == block for _, step in found)
                scale = _scale(x[2 * number + 1])
                found.append((again, Step(model=model, block=block, scale=scale)))
        while len(found) > self.most:  # the last of the repeats goes, and, without any, the last
            found.pop(max(range(len(found)), key=lambda i: (found[i][0], i)))
        if not found:
            return tuple(Step(model=0, block=b) for b in range(min(self.blocks, self.most)))
        return tuple(step for _, step in found)

    def point(self, steps: Sequence[Step]) -> list[float]:
        """The middle of the points of a path; of one that is out of order, of its steps in order."""
        found: list[float] = []
        for block in range(self.blocks):
            own = [step for step in steps if step.block == block][: self.repeats]
            for place in range(self.repeats):
                step = own[place] if place < len(own) else None
                found.append(self._middle(None if step is None else step.model, place))
                found.append(0.5 if step is None else _place(step.scale))
        return found

    def _model(self, x: float, place: int) -> int | None:
        none, merge = OTHER if place else FIRST
        if x < none:
            return None
        if x < merge:
            return 0
        return 1 + min(self.sources - 1, int((x - merge) / (1 - merge) * self.sources))

    def _middle(self, model: int | None, place: int) -> float:
        none, merge = OTHER if place else FIRST
        if model is None:
            return START if place else none / 2
        if model == 0:
            return (none + merge) / 2
        return merge + (min(model, self.sources) - 0.5) / self.sources * (1 - merge)


def _scale(x: float) -> float:
    low, high = (math.log(s) for s in SCALE)
    return round(math.exp(low + min(1.0, max(0.0, x)) * (high - low)), 6)


def _place(scale: float) -> float:
    low, high = (math.log(s) for s in SCALE)
    return min(1.0, max(0.0, (math.log(scale) - low) / (high - low)))
