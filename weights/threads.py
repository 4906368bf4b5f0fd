"""The number of threads that torch computes with."""

from __future__ import annotations

import os

import torch

from runs.home import threads


def set_threads(count: int | None = None) -> None:
    """Use `count` threads in torch (default: FORGE_THREADS, or every core of this process)."""
    torch.set_num_threads(count or threads() or len(os.sched_getaffinity(0)))
