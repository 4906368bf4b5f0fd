"""Genes of paths through layers: data flow space in [0, 1]ⁿ.

Pure. Every block of the models has `repeats` places in a row, and every place has two genes: the
model whose block stands there, if any, and the factor on the block's input. Akiba et al. 2025 (see
`evomerge.merging.dataflow`) repeat all layers in a row and let an indicator switch each layer on.
Here a block's repeats follow it directly, so that their input is similar to the one that the block
was trained on.

    whose, first place    | none | the merge's            | a source's, one after the other |
                          0     .2                       .55                                1
    whose, other places   | none                          | the merge's | a source's        |
                          0                              .55           .75                  1

Both kinds of place begin at .375. For a block's first place this value means the merge's block, as
far from "none" as from a source; for the other places it means "none". The result is the path of an
ordinary model. If a path has more than `most` blocks, its last repeats are left out. A path that
skips every block counts as the ordinary path. Categories are intervals, so several points mean one
path: `point` gives the middle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agent_forge.evomerge.recipes.recipe import Step

#: Initial value of every "whose" gene.
START = 0.375
#: Upper ends of the intervals (none, the merge's), for a block's first place and for its others.
FIRST, OTHER = (0.2, 0.55), (0.55, 0.75)
#: Bounds of the factor on a block's input, on a logarithmic scale: 1 lies in the middle.
SCALE = (0.5, 2.0)


@dataclass(frozen=True)
class Paths:
    """The space of paths through a merge of `blocks` blocks and its sources."""

    blocks: int
    sources: int
    repeats: int
    #: Largest number of blocks of a path.
    most: int

    @property
    def dimension(self) -> int:
        """The number of genes of a path."""
        return 2 * self.blocks * self.repeats

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the genes, in order, for example "block 3 again whose"."""
        return tuple(
            f"block {block + 1}{' again' * place} {what}"
            for block in range(self.blocks)
            for place in range(self.repeats)
            for what in ("whose", "scale")
        )

    @property
    def straight(self) -> list[float]:
        """The genes of the path through every block of the merge, once."""
        return [START, 0.5] * (self.blocks * self.repeats)

    def steps(self, x: Sequence[float]) -> tuple[Step, ...]:
        """Return the path of a point: its steps, in order of their blocks."""
        marked_steps: list[tuple[bool, Step]] = []
        for number in range(self.blocks * self.repeats):
            block, place = divmod(number, self.repeats)
            model = self._model(x[2 * number], place)
            if model is not None:
                again = any(step.block == block for _, step in marked_steps)
                scale = _scale(x[2 * number + 1])
                marked_steps.append((again, Step(model=model, block=block, scale=scale)))
        while len(marked_steps) > self.most:  # drop the last repeat or, if none is left, the last step
            marked_steps.pop(max(range(len(marked_steps)), key=lambda i: (marked_steps[i][0], i)))
        if not marked_steps:
            return tuple(Step(model=0, block=b) for b in range(min(self.blocks, self.most)))
        return tuple(step for _, step in marked_steps)

    def point(self, steps: Sequence[Step]) -> list[float]:
        """Return the middle of the points that mean a path.

        The steps of a path that is out of order are put in the order of their blocks.
        """
        coordinates: list[float] = []
        for block in range(self.blocks):
            block_steps = [step for step in steps if step.block == block][: self.repeats]
            for place in range(self.repeats):
                step = block_steps[place] if place < len(block_steps) else None
                coordinates.append(self._middle(None if step is None else step.model, place))
                coordinates.append(0.5 if step is None else _place(step.scale))
        return coordinates

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
