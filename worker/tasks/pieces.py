"""Pieces of a run's task in this process: those that the log has as parts, and those that are done now.

The results of a part are kept as tensors under their digest, on this machine and in the shared store.
Pieces whose results are missing here are done again. So are those of a start that another machine did:
before a run has a profile, that machine may be of another kind, whose results have other bits.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

from agent_forge.events import failpoints
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.kinds.decide import SECONDS, Start, Task, TaskPart
from agent_forge.runs.kinds.state import State
from agent_forge.runs.record.events import PartDone
from agent_forge.runs.system import pace
from agent_forge.weights.pieces import Tensors
from agent_forge.weights.storage.weight_cache import Artifacts

if TYPE_CHECKING:
    import torch


#: Set when this process has to stop soon: a part is recorded after the piece under way.
END_SOON = threading.Event()


class PartEnded(BaseException):
    """A part of a task is done: no error, and nothing between the pieces and the recorder stops it."""

    def __init__(self, event: PartDone) -> None:
        super().__init__(event.task)
        self.event = event


def part_seconds() -> float:
    """Return FORGE_PART_SECONDS, by default 30, after which a part is recorded. Raises ConfigError."""
    text = os.environ.get("FORGE_PART_SECONDS") or str(SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise ConfigError(f"FORGE_PART_SECONDS is {text!r}: give a number of seconds, 0 or more.")
    return seconds


class TaskPieces:
    """Loop over the pieces of one task (`weights/pieces.py`): once through the work on the task."""

    def __init__(self, cache: Artifacts, state: State, task: Task) -> None:
        """Prepare the loop for a task, or for the pieces of a `TaskPart`; nothing is done yet."""
        self._cache = cache
        self._part = task if isinstance(task, TaskPart) else None
        self._key = task.whole.key if isinstance(task, TaskPart) else task.key
        self._recorded = sorted(state.parts.get(self._key, {}).values(), key=lambda p: p.begin)
        self._seconds, self._began = part_seconds(), time.monotonic()
        #: Pieces that are known so far; results that are done now, and those that were read.
        self._known = 0
        self._done: dict[int, Tensors] = {}
        self._read: dict[int, Tensors] = {}

    def __call__(self, count: int, work: Callable[[int], Tensors]) -> list[Tensors]:
        """Return the results of the next `count` pieces of the task. Raises PartEnded."""
        first, self._known = self._known, self._known + count
        for number in range(first, self._known):
            if self._is_asked(number):
                self._done[number] = work(number - first)
                pace.note("pieces", number + 1, self._known)
                self._end_in_time(number)
        return [self._result(number, first, work) for number in range(first, self._known)]

    def _is_asked(self, number: int) -> bool:
        """Return True if a piece is to be done now."""
        if self._part is not None:
            return self._part.begin <= number < self._part.end
        return self._recorded_with(number) is None

    def _recorded_with(self, number: int) -> PartDone | None:
        """Return the recorded part that has a piece, or None."""
        at = bisect_right(self._recorded, number, key=lambda part: part.begin) - 1
        part = self._recorded[at] if at >= 0 else None
        return part if part is not None and number < part.end else None

    def _end_in_time(self, number: int) -> None:
        """Raise PartEnded after a `TaskPart`'s last piece, at the end of its time, or if END_SOON."""
        is_last = self._part is not None and number + 1 == self._part.end
        is_over = END_SOON.is_set() or time.monotonic() - self._began >= self._seconds
        if not (is_last or is_over):
            return
        from agent_forge.weights.folders.checkpoint import digest

        begin = min(self._done)
        tensors = {
            f"{piece}/{name}": tensor
            for piece, result in sorted(self._done.items())
            for name, tensor in result.items()
        }
        seconds, content_digest = time.monotonic() - self._began, digest(tensors)
        self._cache.keep(content_digest, tensors, seconds)
        failpoints.hit("part-kept")
        raise PartEnded(
            PartDone(
                task=self._key,
                begin=begin,
                end=number + 1,
                of=self._known,
                digest=content_digest,
                seconds=seconds,
            )
        )

    def _result(self, number: int, first: int, work: Callable[[int], Tensors]) -> Tensors:
        """Return the result of a piece: done now, kept, or else done again."""
        if number in self._done:
            return self._done[number]
        if number not in self._read:
            part = self._recorded_with(number)
            if part and (self._key != Start.key or self._cache.files(part.digest)):
                self._read |= _by_piece(self._cache.get(part.digest) or {})
        if number not in self._read:
            self._read[number] = work(number - first)
        return self._read[number]


def _by_piece(tensors: Tensors) -> dict[int, dict[str, torch.Tensor]]:
    """Return piece → its result, of the tensors of a part."""
    results: dict[int, dict[str, torch.Tensor]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition("/")
        results.setdefault(int(number), {})[name] = tensor
    return results
