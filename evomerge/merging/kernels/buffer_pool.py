"""Memory for models, taken again when nobody holds it any more.

The system needs longer for a page that was never used than a merge needs to fill it, and gives large
pages only to large pieces: so a model's tensors lie in one piece, which the next model gets.
"""

from __future__ import annotations

import weakref

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

#: Tensors begin at a multiple of so many bytes.
ALIGNED = 64
#: Bytes that are kept at most while nobody uses them.
KEPT = 1 << 30
#: A piece is taken for what needs this share of it at least.
_LEAST = 0.8

#: Pieces that wait, by their identity; the oldest first. What is done with it is one step of the
#: interpreter each, as tensors end in any thread, and in the middle of anything.
_waiting: dict[int, Bytes] = {}


def take(size: int) -> Bytes:
    """[size] uint8 that begins at a multiple of ALIGNED, whatever is in it.

    When the last view of it is gone, it waits for the next who asks.
    """
    memory = _waited_for(size + ALIGNED)
    if memory is None:
        memory = np.empty(size + ALIGNED, np.uint8)
    # Through a buffer: views of an array would hold that, not what is handed out here.
    handed = np.frombuffer(memory.data, np.uint8)
    weakref.finalize(handed, _give, memory).atexit = False
    start = -handed.ctypes.data % ALIGNED
    return handed[start : start + size]


def _waited_for(size: int) -> Bytes | None:
    fitting = [
        (memory.size, key) for key, memory in list(_waiting.items())
        if size <= memory.size <= size / _LEAST
    ]  # fmt: skip
    for _, key in sorted(fitting):
        memory = _waiting.pop(key, None)
        if memory is not None:
            return memory
    return None


def _give(memory: Bytes) -> None:
    if memory.size > KEPT:
        return
    _waiting[id(memory)] = memory
    while sum(kept.size for kept in list(_waiting.values())) > KEPT:
        for oldest in list(_waiting)[:1]:
            _waiting.pop(oldest, None)
