"""Speed and memory, measured once per architecture and device; reported, never used in decisions.

Several models are timed in turns, one pass of each after the other, so that a busy moment of the
machine hits all of them. The models are compared by the median of the turns' ratios. Timed is the
work that scores windows: a forward pass of the models' own batch, and the losses computed from it.
"""

from __future__ import annotations

import gc
import itertools
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from evaluation.backends.local_backend import ResidentModel
from weights.cost import Speed


@dataclass(frozen=True)
class Beside:
    """A model's speed, and how it compares with the first model's."""

    speed: Speed
    #: How many times as fast as the first model: median, least and most of the turns.
    ratio: float
    least: float
    most: float


def measure(
    model: ResidentModel, context: int, repetitions: int = 5, most: int | None = None
) -> Speed:
    """Time forward passes of the loaded model, each of at most `most` windows.

    Wall-clock: another call gives other numbers.
    """
    return paired([model], context, repetitions, most)[0].speed


def paired(
    models: Sequence[ResidentModel], context: int, repetitions: int = 5, most: int | None = None
) -> list[Beside]:
    """Time forward passes of loaded models in turns, each with the smallest of their batches."""
    rows = min(model.rows(context) for model in models)
    rows = max(1, min(rows, most or rows))
    ids = torch.zeros((rows, context), dtype=torch.int64)
    peaks = [_peak(model, ids) for model in models]  # this warms up as well
    turns = [[_seconds(model, ids) for model in models] for _ in range(repetitions)]
    short = [[_seconds(model, ids[:1]) for model in models] for _ in range(repetitions)]
    result = []
    for place, peak in enumerate(peaks):
        speeds = [ids.numel() / turn[place] for turn in turns]
        latencies = [turn[place] for turn in short]
        ratios = [turn[0] / turn[place] for turn in turns]
        speed = Speed(
            tokens_per_second=statistics.median(speeds),
            spread=(max(speeds) - min(speeds)) / 2,
            latency_seconds=statistics.median(latencies),
            latency_spread=(max(latencies) - min(latencies)) / 2,
            peak_bytes=peak,
        )
        result.append(Beside(speed, statistics.median(ratios), min(ratios), max(ratios)))
    return result


def _seconds(model: ResidentModel, ids: torch.Tensor) -> float:
    started = time.perf_counter()
    model.token_losses(ids)  # the results are on the CPU, so a GPU has finished
    return time.perf_counter() - started


def _peak(model: ResidentModel, ids: torch.Tensor) -> int:
    """Return the bytes of tensors that a forward pass needs at once beyond what is allocated.

    The first pass warms up. Scratch memory that libraries take past PyTorch's allocator is not counted.
    What the kernel says of the process is of no use: other threads give memory back meanwhile, and
    the kernel takes pages of files when it likes.
    """
    _seconds(model, ids)
    if model.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(model.device)
        before = torch.cuda.memory_allocated(model.device)
        _seconds(model, ids)
        return torch.cuda.max_memory_allocated(model.device) - before
    gc.collect()  # else garbage that goes during the pass makes room, unseen
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler writes to the terminal
    with torch.autograd.profiler.profile(use_kineto=False, profile_memory=True) as profiler:
        _seconds(model, ids)
    changes = []
    for event in profiler.function_events or ():  # pyright: ignore[reportOptionalMemberAccess]
        change = event.self_cpu_memory_usage
        # An operation's own tensors live while it runs: given back at its end, taken at its start.
        changes.append((event.time_range.start if change > 0 else event.time_range.end, change))
    return max(itertools.accumulate((change for _, change in sorted(changes)), initial=0))
