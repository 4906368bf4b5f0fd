"""Torch's settings of a process that computes: the number of threads, sums on GPUs in one order."""

from __future__ import annotations

import os

import torch

from runs.home import threads

#: cuBLAS' workspaces: with these its products add in the same order every time (cuBLAS Library,
#: "Results reproducibility"). torch asks for it when deterministic algorithms are on.
WORKSPACES = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def set_threads(count: int | None = None) -> None:
    """Use `count` threads in torch (default: FORGE_THREADS, or every core of this process).

    On GPUs, matrix products then add in one order.
    """
    reproducible_products()
    torch.set_num_threads(count or threads() or len(os.sched_getaffinity(0)))


def reproducible_products() -> None:
    """Let cuBLAS add in one order, unless the user has chosen workspaces."""
    os.environ.setdefault(*WORKSPACES)
