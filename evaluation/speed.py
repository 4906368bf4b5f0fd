"""Speed and memory, measured once per architecture and device; reported, never decided by.

Several models are timed in turns, one pass of each after the other, so that a busy moment of the
machine hits all of them; how they compare is the median of the turns' ratios. What is timed is what
scores windows: a forward pass of the models' own batch, and what makes losses of it.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from evaluation.backends.local_backend import ResidentModel
from weights.cost import Speed


@dataclass(frozen=True)
class Beside:
    """A model's speed, and how it compares with the first model's."""

    speed: Speed
    #: Times as fast as the first model: the median of the turns, the least and the most.
    ratio: float
    least: float
    most: float


def measure(
    model: ResidentModel, context: int, repetitions: int = 5, most: int | None = None
) -> Speed:
    """Time forward passes of the loaded model, of `most` windows at the most.

    Wall-clock: another run gives other numbers.
    """
    return paired([model], context, repetitions, most)[0].speed


def paired(
    models: Sequence[ResidentModel], context: int, repetitions: int = 5, most: int | None = None
) -> list[Beside]:
    """Time forward passes of loaded models, in the smallest of their batches, beside the first."""
    rows = min(model.rows(context) for model in models)
    rows = max(1, min(rows, most or rows))
    ids = torch.zeros((rows, context), dtype=torch.int64)
    peaks = [_peak(model, ids) for model in models]  # this prepares as well
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
    model.token_losses(ids)  # its results are on the CPU: a GPU has ended
    return time.perf_counter() - started


def _peak(model: ResidentModel, ids: torch.Tensor) -> int | None:
    """Bytes that forward passes need beyond what is there, of two: the first one prepares."""
    _seconds(model, ids)
    if model.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(model.device)
        before = torch.cuda.memory_allocated(model.device)
        _seconds(model, ids)
        return torch.cuda.max_memory_allocated(model.device) - before
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what was freed would be used again, unseen
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark falls to what is there
        before = _resident("VmRSS")
        _seconds(model, ids)
        return max(0, _resident("VmHWM") - before)
    except (AttributeError, OSError, ValueError):
        return None


def _resident(what: str) -> int:
    """A line of /proc/self/status, in bytes. Raises OSError, ValueError."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) * 1024
    raise ValueError(what)
