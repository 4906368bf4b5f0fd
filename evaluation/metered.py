"""Measuring that says how long it takes and how far it is. The figures stay the same to the bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluation.backends.backend import Losses, batches
from evaluation.backends.local_backend import ResidentModel
from evaluation.data.packing import Ids, Packed, Posed
from runs.system.durations import duration
from runs.system.stopwatch import least

#: Seconds of work below which nothing is said, and between two messages at least.
QUIET = 20.0
#: Messages about the share done, at most.
MESSAGES = 50
#: Continuations and problems that the forecast measures.
SAMPLE = 8


class Metered:
    """Evaluator that passes all work on to a model of this process and tells the share done.

    Windows reach the model batch by batch, in the batches of the model itself.
    """

    def __init__(
        self,
        model: ResidentModel,
        data: Mapping[str, Packed],
        tokenizer: Any,
        tell: Callable[[str], None],
    ) -> None:
        """Measure what an item of each kind costs, and tell how long all items of `data` will take."""
        self._model, self._tell = model, tell
        packed = [data[domain] for domain in sorted(data)]
        windows = [ids for part in packed for ids in part.windows]
        pairs = [q.pair(c) for p in packed for q in p.questions for c in range(len(q.sequences))]
        problems = [posed for part in packed for posed in part.problems]
        _, first = next(batches(windows, model.rows, 1, model.positions))
        batch = [windows[place] for place in first]
        #: Seconds of a window, a continuation and a problem.
        self._prices = {"windows": least(lambda: model.losses(batch)) / len(batch)}
        self._total = self._prices["windows"] * len(windows)
        if pairs:
            self._add("pairs", len(pairs), lambda: model.continuations(pairs[:SAMPLE]))
        if problems:
            sample = problems[:SAMPLE]
            self._add("problems", len(problems), lambda: model.replies(sample, tokenizer))
        if self._total >= QUIET:
            tell(f"about {duration(self._total)}, by a probe of each kind of item")
        self._done, self._began = 0.0, time.monotonic()
        self._told = self._began

    @property
    def positions(self) -> int | None:
        """The longest sequence that the model takes; None if that is not known."""
        return self._model.positions

    def losses(self, sequences: Sequence[Ids]) -> list[Losses]:
        """Return the losses of every sequence."""
        losses: dict[int, Losses] = {}
        for _, places in batches(sequences, self._model.rows, 1, self._model.positions):
            batch = self._model.losses([sequences[place] for place in places])
            losses.update(zip(places, batch, strict=True))
            self._count("windows", len(places))
        return [losses[place] for place in range(len(sequences))]

    def continuations(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[NDArray[np.float32]]:
        """Return −log p of every token of each continuation."""
        losses = self._model.continuations(pairs)
        self._count("pairs", len(pairs))
        return losses

    def replies(self, problems: Sequence[Posed], tokenizer: Any) -> list[str]:
        """Return greedy replies."""
        replies = self._model.replies(problems, tokenizer)
        self._count("problems", len(problems))
        return replies

    def _add(self, kind: str, count: int, sample: Callable[[], object]) -> None:
        """Measure the price of a kind of item on at most SAMPLE items, and add `count` of them."""
        self._prices[kind] = least(sample) / min(SAMPLE, count)
        self._total += self._prices[kind] * count

    def _count(self, kind: str, count: int) -> None:
        """Add finished items; now and then tell the share done and the time left."""
        self._done += self._prices.get(kind, 0.0) * count
        now = time.monotonic()
        if (
            now - self._told < max(QUIET, self._total / MESSAGES)
            or not 0 < self._done < self._total
        ):
            return
        left = (now - self._began) / self._done * (self._total - self._done)
        self._tell(f"{self._done / self._total:.0%} done, {duration(left)} left")
        self._told = now
