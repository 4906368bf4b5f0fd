"""Torch's settings of a process that computes: threads, sums on GPUs in one order, room for kernels."""

from __future__ import annotations

import os

import torch

from agent_forge.runs.home import threads

#: cuBLAS' workspaces: with these its products add in the same order every time (cuBLAS Library,
#: "Results reproducibility"). torch asks for it when deterministic algorithms are on.
WORKSPACES = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
#: On CPUs oneDNN generates code for every shape of product in bfloat16 that it meets, about 0.4 MB of
#: memory each. It keeps the last 1,024 by itself, and torch as many again: texts of all lengths fill
#: both. With 256 a process has half a gigabyte less (docs/benchmarks.md). Read at the first product.
KERNELS = 256
KERNEL_CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


def set_threads(count: int | None = None) -> None:
    """Use `count` threads in torch (default: FORGE_THREADS, or every core of this process).

    On GPUs, matrix products then add in one order; on CPUs fewer kernels are kept in memory.
    """
    reproducible_products()
    keep_fewer_kernels()
    torch.set_num_threads(count or threads() or len(os.sched_getaffinity(0)))


def reproducible_products() -> None:
    """Let cuBLAS add in one order, unless the user has chosen workspaces."""
    os.environ.setdefault(*WORKSPACES)


def keep_fewer_kernels() -> None:
    """Let oneDNN and torch keep `KERNELS` generated kernels each, unless the user has chosen."""
    for name in KERNEL_CACHES:
        os.environ.setdefault(name, str(KERNELS))
