"""Pieces of long work: a loop whose rounds are independent, so that a task can be done in parts.

A loop of forward passes, matrices or replies calls `each`. By itself that is a plain loop. Work on a
task of a run does it in `divided`: then the device takes pieces from the parts that the log has, stops
between two pieces when its time is over, and leaves the others to further devices
(`worker/tasks/pieces.py`). What a piece gives depends on its number alone, so no result depends on how
the work was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from agent_forge.runs.system import pace

if TYPE_CHECKING:
    import torch

#: Result of a piece: name → tensor on the CPU.
Tensors = Mapping[str, "torch.Tensor"]


#: A way to do pieces 0 … n − 1 of a task: (n, function that returns a piece's result) → results.
Loop = Callable[[int, Callable[[int], Tensors]], list[Tensors]]


def _silent(count: int, work: Callable[[int], Tensors]) -> list[Tensors]:
    return [work(number) for number in range(count)]


def _plain(count: int, work: Callable[[int], Tensors]) -> list[Tensors]:
    results: list[Tensors] = []
    for number in range(count):
        results.append(work(number))
        pace.note("pieces", number + 1, count)
    return results


#: The loop that `each` does its pieces by, and the one that `divided` chooses.
_loop: ContextVar[Loop] = ContextVar("loop", default=_plain)
_offered: ContextVar[Loop] = ContextVar("offered", default=_plain)


def each(count: int, work: Callable[[int], Tensors]) -> list[Tensors]:
    """Return [work(0), …, work(count − 1)], made by the loop that `divided` chose, else one by one.

    A loop within a piece is a plain one.
    """
    loop = _loop.get()
    with _set(_loop, _silent):
        return loop(count, work)


def divided() -> AbstractContextManager[None]:
    """Return a context manager in which `each` uses the loop of `offered`, or a plain one without it.

    Within, a task must come to the same loops, with the same counts and contents, in the same order,
    whenever it is done: models are loaded before, and what a cache may hold is made in `undivided`.
    """
    return _set(_loop, _offered.get())


def undivided() -> AbstractContextManager[None]:
    """Return a context manager in which `each` is a plain loop, for what a cache lacks in a task.

    Within `divided` it is silent: the pace stays that of the task's own pieces.
    """
    return _set(_loop, _plain if _loop.get() is _plain else _silent)


def offered(loop: Loop) -> AbstractContextManager[None]:
    """Return a context manager in which `divided` makes `each` do its pieces by `loop`."""
    return _set(_offered, loop)


@contextmanager
def _set(variable: ContextVar[Loop], loop: Loop) -> Iterator[None]:
    token = variable.set(loop)
    try:
        yield
    finally:
        variable.reset(token)
