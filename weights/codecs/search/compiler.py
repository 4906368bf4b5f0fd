"""Decorators that compile the codecs' inner loops with numba, without the interpreter's lock.

Numba's cache notices a change in a function's own file only. So a loop and every compiled function that
it calls stand in one file.
"""

from __future__ import annotations

from collections.abc import Callable

from numba import njit


def _njit(function: Callable, fastmath: bool | set[str] = False) -> Callable:
    """Return the compiled function, cached on disk if a folder for that can be written."""
    try:
        return njit(cache=True, nogil=True, error_model="numpy", fastmath=fastmath)(function)
    except RuntimeError:  # numba finds no folder that it can write
        return njit(nogil=True, error_model="numpy", fastmath=fastmath)(function)


def compiled(function: Callable) -> Callable:
    """Return the function compiled in IEEE arithmetic: the same bits on every machine."""
    return _njit(function)


def compiled_fast(function: Callable) -> Callable:
    """Return the function compiled with fused products and sums, for finite numbers.

    The last bits may differ between machines: use it for bounds that have a margin.
    """
    return _njit(function, fastmath={"contract", "nnan", "nsz", "ninf"})
