"""Training loop, deterministic from its seed.

The optimizer is AdamW (Loshchilov & Hutter 2019) with linear warm-up and cosine decay to a tenth of
the peak. Windows are drawn by a `numpy` Philox generator keyed by (seed, phase); no global random
state is read after the model's own initialisation.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from phases.cognate.presets import Preset

#: Share of the peak learning rate that is left at the end of a phase.
FLOOR = 0.1
CLIP = 1.0
WEIGHT_DECAY = 0.1


@dataclass(frozen=True)
class Progress:
    """Progress of a training phase, reported about twenty times in it."""

    phase: str
    step: int
    steps: int
    #: Mean cross-entropy in nats a token since the last report.
    loss: float
    tokens_per_second: float


def seeded(seed: int, purpose: str) -> np.random.Generator:
    """Return a random generator for one purpose only; draws for other purposes do not change it."""
    key = int.from_bytes(hashlib.sha256(f"cognate/{seed}/{purpose}".encode()).digest()[:16], "big")
    return np.random.Generator(np.random.Philox(key=key))


def learning_rate(step: int, steps: int, peak: float, warmup: float) -> float:
    """Return the learning rate of a step.

    It rises linearly over `warmup` of the steps, then falls as a cosine to `FLOOR` of the peak.
    """
    warm = max(1, round(steps * warmup))
    if step < warm:
        return peak * (step + 1) / warm
    along = (step - warm) / max(1, steps - warm)
    return peak * (FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * along)))


def train(
    model: Any,
    streams: Mapping[str, np.ndarray],
    shares: Mapping[str, float],
    preset: Preset,
    *,
    phase: str,
    tokens: int,
    peak: float,
    seed: int,
    report: Callable[[Progress], None],
) -> None:
    """Train `model` in place on windows of `streams` (domain → token ids), drawn by `shares`."""
    steps = max(1, tokens // (preset.batch * preset.context))
    rng = seeded(seed, phase)
    optimizer = _optimizer(model, peak)
    model.train()
    started, losses = time.perf_counter(), []
    every = max(1, steps // 20)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, peak, preset.warmup)
        batch = torch.from_numpy(_windows(streams, shares, preset, rng))
        logits = model(input_ids=batch[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        if (step + 1) % every == 0 or step + 1 == steps:
            done = (step + 1) * preset.batch * preset.context
            speed = done / (time.perf_counter() - started)
            report(Progress(phase, step + 1, steps, float(torch.stack(losses).mean()), speed))
            losses = []
    model.eval()


def _windows(
    streams: Mapping[str, np.ndarray],
    shares: Mapping[str, float],
    preset: Preset,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw [batch, context + 1] int64: each row of a domain drawn by share, at a random place."""
    domains = sorted(shares)
    total = sum(shares.values())
    rows = []
    for chosen in rng.choice(len(domains), preset.batch, p=[shares[d] / total for d in domains]):
        stream = streams[domains[int(chosen)]]
        at = int(rng.integers(0, len(stream) - preset.context - 1))
        rows.append(stream[at : at + preset.context + 1])
    return np.stack(rows).astype(np.int64)


def _optimizer(model: Any, peak: float) -> torch.optim.Optimizer:
    """Return AdamW with weight decay for matrices, and none for norms and biases."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": rest, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95), fused=True)
