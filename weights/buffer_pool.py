"""Buffer pool: a model's memory is reused once nothing references it.

The operating system takes longer to provide a fresh page than a merge takes to fill it. Large pages
are given only to large pieces of memory. So a model's tensors lie in one piece, and the next model
takes over that piece.
"""

from __future__ import annotations

import weakref

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

#: Tensors begin at a multiple of this number of bytes.
ALIGNED = 64
#: Most bytes that are kept while unused: 135 million numbers in float32.
KEPT = 600_000_000
#: A piece is reused for a request that needs at least this share of the piece.
_LEAST = 0.8

#: id(piece) → unused piece, the oldest first. Every operation on this dict is one step of
#: the interpreter, because a tensor may be freed in any thread and at any point.
_waiting: dict[int, Bytes] = {}


def take(size: int) -> Bytes:
    """Return [size] uint8 at an address that ALIGNED divides; its contents are undefined.

    When the last view of the memory is gone, the pool keeps the memory for a later call.
    """
    memory = _waited_for(size + ALIGNED)
    if memory is None:
        memory = np.empty(size + ALIGNED, np.uint8)
    # Through a buffer: a view of a slice would keep `memory` alive instead of `handed`.
    handed = np.frombuffer(memory.data, np.uint8)
    weakref.finalize(handed, _give, memory).atexit = False
    start = -handed.ctypes.data % ALIGNED
    return handed[start : start + size]


def drop() -> None:
    """Free all unused memory of the pool."""
    _waiting.clear()


def _waited_for(size: int) -> Bytes | None:
    fitting = [
        (memory.size, key)
        for key, memory in list(_waiting.items())
        if size <= memory.size <= size / _LEAST
    ]
    for _, key in sorted(fitting):
        memory = _waiting.pop(key, None)
        if memory is not None:
            return memory
    return None


def _give(memory: Bytes) -> None:
    if memory.size > KEPT:
        return
    _waiting[id(memory)] = memory
    while sum(buffer.size for buffer in list(_waiting.values())) > KEPT:
        for oldest in list(_waiting)[:1]:
            _waiting.pop(oldest, None)
