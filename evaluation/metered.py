"""Measuring that says how long it takes and how far it is. The figures stay the same to the bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agent_forge.evaluation.backends.backend import Losses, batches
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.packing import Ids, Packed, Posed
from agent_forge.runs.system.durations import duration, least_of_both

#: Seconds of work below which nothing is said, and between two messages at least.
QUIET = 20.0
#: Ratio of clock time to processor time from which a forecast is a range.
APART = 1.5
#: Messages about the share done, at most.
MESSAGES = 50
#: Continuations and problems that the forecast measures.
SAMPLE = 8


def forecast(seconds: float, alone: float) -> str:
    """Return how long all items take, in words.

    `seconds` are at the pace of the probe, `alone` those in which all threads do the same work without
    waiting for a processor. They differ if other programs ran beside the probe, and if threads idled.
    """
    probe = "by a probe of each kind of item"
    if seconds < APART * alone:
        return f"about {duration(seconds)}, {probe}"
    return (
        f"{duration(alone)} to {duration(seconds)}, {probe}: the former if the processors are "
        "free, the latter if they stay as busy as now"
    )


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
        self._prices: dict[str, float] = {}
        #: Seconds of all items at the pace of the probe, and if this process had its processors alone.
        self._total = self._alone = 0.0
        self._add("windows", len(windows), len(batch), lambda: model.losses(batch))
        if pairs:
            few = pairs[:SAMPLE]
            self._add("pairs", len(pairs), len(few), lambda: model.continuations(few))
        if problems:
            sample = problems[:SAMPLE]
            self._add(
                "problems", len(problems), len(sample), lambda: model.replies(sample, tokenizer)
            )
        if self._total >= QUIET:
            tell(forecast(self._total, self._alone))
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

    def _add(self, kind: str, count: int, size: int, sample: Callable[[], object]) -> None:
        """Measure the price of a kind of item on a sample of `size`, and add `count` of them."""
        seconds, of_processors = least_of_both(sample)
        self._prices[kind] = seconds / size
        self._total += seconds / size * count
        on_cpu = self._model.device.type == "cpu"
        alone = min(seconds, of_processors / torch.get_num_threads()) if on_cpu else seconds
        self._alone += alone / size * count

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
