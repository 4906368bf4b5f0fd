"""Maker of a baking run's models: each training reads the turns of its own iteration."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from studies.making.maker import Maker
from weights.recipes import Train
from weights.training.loop import Snapshot
from weights.training.windows import Ids

#: Recipe → its streams by name.
StreamsOf = Callable[[Train], Mapping[str, Ids]]


class CycleMaker(Maker):
    """A maker whose trainings have streams of the same names with different contents."""

    def reading(self, streams: StreamsOf) -> CycleMaker:
        """Take the streams of each training from `streams`; return the maker."""
        self._of = streams
        self._under_way: list[Train] = []
        self._streams = lambda: self._of(self._under_way[-1]) if self._under_way else {}
        return self

    def _carried(self, recipe: Train, before: Snapshot | None) -> Snapshot:
        """Return the snapshot at `recipe.upto`; models that it begins with are made on the way."""
        self._under_way.append(recipe)
        try:
            return super()._carried(recipe, before)
        finally:
            self._under_way.pop()
