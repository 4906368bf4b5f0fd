"""How an architecture is best run here: measured when a run is started, pinned in its profile.

The batch: forward passes of 1, 2, 4, … windows, until twice as many are no faster (by 5 %) two times in
a row, or do not fit into memory. The dtype: bfloat16 where it is at least a tenth faster and the
perplexity of every source on the calibration windows stays within `TOLERANCE` of itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from evomerge.fitness.layers import calibration_loss
from evomerge.fitness.packing import Packed
from evomerge.fitness.resident import ResidentModel

#: Windows of one forward pass, at the most.
MOST = 256
#: Logits of one forward pass on a CPU, bytes at the most.
LOGIT_BYTES = 1 << 30
GAIN, REPETITIONS = 1.05, 3
#: By how much a perplexity may differ, relatively, for bfloat16 to count as equal; how much faster
#: it must be.
TOLERANCE, FASTER = 0.005, 1.1


def batch(model: ResidentModel, context: int) -> dict[int, float]:
    """Tokens of a forward pass → tokens a second, for every batch tried, with the loaded weights.

    Wall-clock: another call gives other numbers.
    """
    found: dict[int, float] = {}
    fastest, flat, rows = 0.0, 0, 1
    while rows <= MOST and flat < 2:
        bounded = model.device.type == "cpu"  # a GPU says when it is full
        if bounded and rows > 1 and rows * context * model.vocabulary * 4 > LOGIT_BYTES:
            break
        try:
            speed = _speed(model, rows, context)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            break
        found[rows * context] = speed
        flat = flat + 1 if speed < GAIN * fastest else 0
        fastest = max(fastest, speed)
        rows *= 2
    return found


def chosen(speeds: Mapping[int, float]) -> int:
    """The smallest batch within 5 % of the fastest."""
    fastest = max(speeds.values())
    return min(tokens for tokens, speed in speeds.items() if speed * GAIN >= fastest)


def _speed(model: ResidentModel, rows: int, context: int) -> float:
    ids = torch.zeros((rows, context), dtype=torch.int64)
    times = []
    for _ in range(REPETITIONS + 1):  # the first one prepares
        began = time.perf_counter()
        model.token_losses(ids)  # its results are on the CPU: a GPU has ended
        times.append(time.perf_counter() - began)
    return rows * context / min(times[1:])


@dataclass(frozen=True)
class Halved:
    """bfloat16 beside the models' own dtype."""

    #: How many times as fast.
    ratio: float
    #: The largest relative change of a source's perplexity.
    change: float

    @property
    def used(self) -> bool:
        """Whether it pays and gives the same."""
        return self.ratio >= FASTER and self.change <= TOLERANCE


def halved(
    model: ResidentModel,
    sources: Sequence[Mapping[str, torch.Tensor]],
    data: Mapping[str, Packed],
    context: int,
) -> Halved:
    """Measure it; the model is left as it was, the last source's weights loaded."""
    own, rows = model.dtype, model.rows(context)
    speeds, losses = [], []
    try:
        for dtype in (own, torch.bfloat16):
            model.dtype = dtype
            losses.append([calibration_loss(model, weights, data) for weights in sources])
            speeds.append(_speed(model, rows, context))
    finally:
        model.dtype = own
        model.load(sources[-1])
    moves = [abs(after - before) for before, after in zip(*losses, strict=True)]
    known = all(move < 1 for move in moves)  # NaN is not
    return Halved(speeds[1] / speeds[0], math.expm1(max(moves)) if known else math.inf)
