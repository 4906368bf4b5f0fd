"""Speed and memory, measured once per architecture and device; reported, never used in decisions.

Several models are timed in turns, one pass of each after the other, so that a busy moment of the
machine hits all of them. The models are compared by the median of the turns' ratios. Timed is the
work that scores windows: a forward pass of the models' own batch, and the losses computed from it.
"""

from __future__ import annotations

import ctypes
import gc
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


def _peak(model: ResidentModel, ids: torch.Tensor) -> int | None:
    """Return the bytes that a forward pass needs beyond what is allocated; None if unknown.

    The first pass warms up. On a CPU three more are measured, because the kernel may take pages of
    files from the process at any moment: the pass during which they changed least counts, and of equal
    ones that with the largest rise, because memory that others give back meanwhile hides some.
    """
    _seconds(model, ids)
    if model.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(model.device)
        before = torch.cuda.memory_allocated(model.device)
        _seconds(model, ids)
        return torch.cuda.max_memory_allocated(model.device) - before
    try:
        rises = [_rise(model, ids) for _ in range(3)]
        return max(0, min(rises, key=lambda rise: (rise[0], -rise[1]))[1])
    except (AttributeError, OSError, ValueError):
        return None


def _rise(model: ResidentModel, ids: torch.Tensor) -> tuple[int, int]:
    """Return (change of the pages of files, rise of other memory) in a pass, both in bytes.

    Raises OSError, ValueError.
    """
    gc.collect()  # else garbage that goes during the pass makes room, unseen
    ctypes.CDLL(None).malloc_trim(0)  # likewise memory that is free already
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    files, own = _resident("RssFile"), _resident("RssAnon") + _resident("RssShmem")
    _seconds(model, ids)
    after = _resident("RssFile")
    return abs(after - files), _resident("VmHWM") - min(files, after) - own


def _resident(what: str) -> int:
    """Return the value of a line of /proc/self/status, in bytes. Raises OSError, ValueError."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) * 1024
    raise ValueError(what)
