"""Speed and memory, measured once per architecture and device; reported, never decided by."""

from __future__ import annotations

import time

import torch

from evomerge.fitness.cost import Speed
from evomerge.fitness.resident import ResidentModel


def measure(model: ResidentModel, context: int, repetitions: int = 5, batch: int = 8) -> Speed:
    """Time forward passes of the loaded model. Wall-clock: another run gives other numbers."""
    ids = torch.zeros((batch, context), dtype=torch.int64)
    cuda = model.device.type == "cuda"
    model.logits(ids)
    before = 0
    if cuda:
        torch.cuda.reset_peak_memory_stats(model.device)
        before = torch.cuda.memory_allocated(model.device)
    speeds = []
    for _ in range(repetitions):
        speeds.append(ids.numel() / _seconds(model, ids))
    latency = min(_seconds(model, ids[:1]) for _ in range(repetitions))
    peak = torch.cuda.max_memory_allocated(model.device) - before if cuda else None
    return Speed(
        tokens_per_second=sorted(speeds)[len(speeds) // 2],
        spread=(max(speeds) - min(speeds)) / 2,
        latency_seconds=latency,
        peak_bytes=peak,
    )


def _seconds(model: ResidentModel, ids: torch.Tensor) -> float:
    started = time.perf_counter()
    model.logits(ids)
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return time.perf_counter() - started
