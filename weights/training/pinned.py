"""Flags of torch that change numbers, pinned while a training computes and restored afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from weights.threads import reproducible_products

_matmul = torch.backends.cuda.matmul
_deterministic: Any = torch.utils.deterministic

#: What is pinned: name → (read it, write it, value in a training).
FLAGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Any]] = {
    "deterministic algorithms": (
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
        (True, False),
    ),
    # Filling new memory costs time and changes no number of a program that reads none of it.
    "fill uninitialised memory": (
        lambda: _deterministic.fill_uninitialized_memory,
        lambda value: setattr(_deterministic, "fill_uninitialized_memory", value),
        False,
    ),
    "cudnn benchmark": (
        lambda: torch.backends.cudnn.benchmark,
        lambda value: setattr(torch.backends.cudnn, "benchmark", value),
        False,
    ),
    "cudnn attention": (
        torch.backends.cuda.cudnn_sdp_enabled,
        torch.backends.cuda.enable_cudnn_sdp,
        False,
    ),
    "TF32 in matrix products": (
        lambda: _matmul.allow_tf32,
        lambda value: setattr(_matmul, "allow_tf32", value),
        False,
    ),
    "TF32 in cudnn": (
        lambda: torch.backends.cudnn.allow_tf32,
        lambda value: setattr(torch.backends.cudnn, "allow_tf32", value),
        False,
    ),
    "reduced precision of float16 sums": (
        lambda: _matmul.allow_fp16_reduced_precision_reduction,
        lambda value: setattr(_matmul, "allow_fp16_reduced_precision_reduction", value),
        False,
    ),
    "reduced precision of bfloat16 sums": (
        lambda: _matmul.allow_bf16_reduced_precision_reduction,
        lambda value: setattr(_matmul, "allow_bf16_reduced_precision_reduction", value),
        False,
    ),
}


def flags() -> dict[str, Any]:
    """Return the present value of every flag, and the number of threads."""
    return {name: read() for name, (read, _, _) in FLAGS.items()} | {
        "threads": torch.get_num_threads()
    }


@contextmanager
def pinned(threads: int | None = None) -> Iterator[None]:
    """Pin all flags, and the number of threads if it is given; restore them at the end.

    They are restored after an error too: one process does tasks of several runs in turn.
    """
    before = flags()
    reproducible_products()
    try:
        for _, write, value in FLAGS.values():
            write(value)
        if threads is not None:
            torch.set_num_threads(threads)
        with torch.enable_grad():
            yield
    finally:
        for name, (_, write, _) in FLAGS.items():
            write(before[name])
        torch.set_num_threads(before["threads"])
