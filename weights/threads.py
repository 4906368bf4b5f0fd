"""Settings of torch in a process that computes: threads, order of sums on GPUs, kernels, memory."""

from __future__ import annotations

import ctypes
import os

import torch

from agent_forge.runs.home import threads

#: cuBLAS' workspaces: with these its products add in the same order every time (cuBLAS Library,
#: "Results reproducibility"). torch asks for it when deterministic algorithms are on.
WORKSPACES = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
#: On CPUs oneDNN generates code for every shape of a product in bfloat16, about 0.4 MB of memory each.
#: By default oneDNN keeps the last 1,024, and so does torch: texts of many lengths fill both caches.
#: 256 save half a gigabyte a process (docs/benchmarks.md). Both read it at the first product.
KERNELS = 256
KERNEL_CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
#: torch asks Linux for pages of 2 MiB for its larger tensors. The system clears each fresh page; with
#: pages of 4 KiB an evaluation takes a fifth more processor time (docs/benchmarks.md).
LARGE_PAGES = "THP_MEM_ALLOC_ENABLE"
#: glibc maps a piece of as many bytes alone, and gives free memory back from as many bytes on. By
#: default both adapt, up to 32 and 64 MiB: much of what a pass frees is given back, and cleared for
#: the next one (docs/benchmarks.md). Variable → number of mallopt(3), bytes for passes, by default.
HEAP = {
    "MALLOC_MMAP_THRESHOLD_": (-3, 128 << 20, 32 << 20),
    "MALLOC_TRIM_THRESHOLD_": (-1, 256 << 20, 64 << 20),
}


def set_threads(count: int | None = None) -> None:
    """Make torch use `count` threads (default: FORGE_THREADS, or every core of this process).

    GPUs then add matrix products in one order, and CPUs keep fewer kernels in memory and take large
    pages for large tensors.
    """
    reproducible_products()
    for name in KERNEL_CACHES:
        os.environ.setdefault(name, str(KERNELS))
    os.environ.setdefault(LARGE_PAGES, "1")
    torch.set_num_threads(count or threads() or len(os.sched_getaffinity(0)))


def reproducible_products() -> None:
    """Make cuBLAS add in one order, by an environment variable, unless the user has set it."""
    os.environ.setdefault(*WORKSPACES)


def keep_freed_memory(keep: bool) -> None:
    """Make glibc keep freed memory for the next pass or not, as `HEAP` says; the user decides first.

    Passes over models need it. A training would take more memory, and gain nothing.
    """
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        for name, (number, for_passes, by_default) in HEAP.items():
            if name not in os.environ:
                set_option(number, for_passes if keep else by_default)
