"""Freed memory: glibc keeps it in its heaps for further use, unless it is asked to give it back."""

from __future__ import annotations

import ctypes

#: Seconds of work after which it is worth while: of a large model, after each step or task. What was
#: freed lies between what is kept, and the heap would grow from one to the next.
LONG = 2.0


def give_back() -> None:
    """Give the system the memory that is free in the heaps of glibc.

    A training frees thousands of activations, each smaller than what glibc maps alone: a gigabyte and
    more of heap that the next work may not need. Other C libraries give back by themselves.
    """
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
