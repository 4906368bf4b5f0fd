"""Decorators that compile the codecs' inner loops with numba, without the interpreter's lock.

Numba's cache notices a change in a function's own file only. So a loop and every compiled function that
it calls stand in one file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def _njit(function: Callable, **options: Any) -> Any:
    """Return the compiled function, cached on disk if a folder for that can be written."""
    options |= {"nogil": True, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # numba finds no folder that it can write
        return njit(**options)(function)


def compiled(function: Callable) -> Any:
    """Return the function compiled in IEEE arithmetic: the same bits on every machine."""
    return _njit(function)


def compiled_fast(function: Callable) -> Any:
    """Return the function compiled with fused products and sums, for finite numbers.

    The last bits may differ between machines: use it for bounds that have a margin.
    """
    return _njit(function, fastmath={"contract", "nnan", "nsz", "ninf"})
