"""Freed memory: glibc keeps it in its heaps for further use, unless it is asked to give it back."""

from __future__ import annotations

import ctypes

#: Seconds of a step or task after which it is worth while: large ones would let the heap grow.
LONG = 2.0


def give_back() -> None:
    """Give the system the memory that is free in the heaps of glibc.

    A training frees thousands of activations, each smaller than what glibc maps alone: a gigabyte and
    more of heap that the next work may not need. Other C libraries give back by themselves.
    """
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
