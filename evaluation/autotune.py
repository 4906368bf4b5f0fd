"""How an architecture is best run here: measured when a run is started, pinned in its profile.

The batch: forward passes of 1, 2, 4, … windows, until twice as many are no faster (by 5 %) two times in
a row, or do not fit into memory. The dtype: bfloat16 where the perplexity of every source on the
calibration windows stays within `TOLERANCE` of itself, and the processor has instructions for it
(`natively`: no clock is asked) or it is timed to be at least a tenth faster (`halved`). Compiled
passes: where the same holds, and a run's search would win back the seconds that compiling takes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from evaluation.backends.inductor import NotCompiledError
from evaluation.backends.local_backend import ResidentModel
from evaluation.data.packing import Packed
from evaluation.perplexity import calibration_loss

#: Windows of one forward pass, at the most.
MOST = 256
#: Logits of one forward pass on a CPU, bytes at the most.
LOGIT_BYTES = 1 << 30
GAIN, REPETITIONS = 1.05, 3
#: By how much a perplexity may differ, relatively, for another way to count as equal; how much
#: faster it must be.
TOLERANCE, FASTER = 0.005, 1.1
#: What the kernel says of processors that multiply in bfloat16: x86 (AVX-512, AMX) and ARM.
BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
PROCESSORS = Path("/proc/cpuinfo")


def batch(model: ResidentModel, context: int, most: int = MOST) -> dict[int, float]:
    """Tokens of a forward pass → tokens a second, for every batch tried, with the loaded weights.

    `most`: windows of a forward pass at the most. Where memory is full the largest that fitted is left
    out too, as other passes need more. Wall-clock: another call gives other numbers. Raises
    torch.OutOfMemoryError where a single window does not fit.
    """
    found: dict[int, float] = {}
    fastest, flat, rows = 0.0, 0, 1
    while rows <= min(most, MOST) and flat < 2:
        bounded = model.device.type == "cpu"  # a GPU says when it is full
        if bounded and rows > 1 and rows * context * model.vocabulary * 4 > LOGIT_BYTES:
            break
        try:
            speed = tokens_per_second(model, rows, context)
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
            torch.cuda.empty_cache()
            if rows > 2:
                del found[rows // 2 * context]
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


def tokens_per_second(model: ResidentModel, rows: int, context: int) -> float:
    """The best of a few forward passes of [rows, context] tokens and what makes losses of them."""
    ids = torch.zeros((rows, context), dtype=torch.int64)
    times = []
    for _ in range(REPETITIONS + 1):  # the first one prepares
        began = time.perf_counter()
        model.token_losses(ids)  # its results are on the CPU: a GPU has ended
        times.append(time.perf_counter() - began)
    return rows * context / min(times[1:])


@dataclass(frozen=True)
class Trial:
    """Another way to compute beside the models' own."""

    #: How many times as fast.
    ratio: float
    #: The largest relative change of a source's perplexity.
    change: float
    #: What has to be done before the first pass.
    seconds: float = 0.0
    #: Tokens a second of the models' own.
    speed: float = 0.0

    @property
    def better(self) -> bool:
        """Whether it is faster by enough, and gives the same."""
        return self.ratio >= FASTER and self.change <= TOLERANCE

    def pays(self, tokens: float) -> bool:
        """Whether so many tokens win back its seconds too."""
        return self.better and tokens / self.speed * (1 - 1 / self.ratio) > self.seconds


def natively(
    model: ResidentModel, sources: Sequence[Mapping[str, torch.Tensor]], data: Mapping[str, Packed]
) -> bool:
    """Return True if bfloat16 is native to the device and changes no source's perplexity by more
    than `TOLERANCE`. Nothing is timed: another call on the same machine gives the same.

    False for sources that are in bfloat16 already. Leaves the model as `halved` does.
    """
    kinds = {tensor.dtype for weights in sources for tensor in weights.values()}
    if not has_bfloat16(model.device) or kinds <= {torch.bfloat16}:
        return False
    own, losses = model.dtype, []
    try:
        for dtype in (own, torch.bfloat16):
            model.dtype = dtype
            losses.append([calibration_loss(model, weights, data) for weights in sources])
    finally:
        model.dtype = own
        model.load(sources[-1])
    return _change(*losses) <= TOLERANCE


def has_bfloat16(device: torch.device) -> bool:
    """Return True if the device has instructions that multiply in bfloat16.

    Of a CPU the kernel says so; where it does not tell (no Linux), the answer is no.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    try:
        return not BFLOAT16_FLAGS.isdisjoint(PROCESSORS.read_text("utf-8", "replace").split())
    except OSError:
        return False


def halved(
    model: ResidentModel,
    sources: Sequence[Mapping[str, torch.Tensor]],
    data: Mapping[str, Packed],
    context: int,
) -> Trial:
    """Measure bfloat16; the model is left as it was, the last source's weights loaded."""
    own, rows = model.dtype, model.rows(context)
    speeds, losses = [], []
    try:
        for dtype in (own, torch.bfloat16):
            model.dtype = dtype
            losses.append([calibration_loss(model, weights, data) for weights in sources])
            speeds.append(tokens_per_second(model, rows, context))
    finally:
        model.dtype = own
        model.load(sources[-1])
    return Trial(speeds[1] / speeds[0], _change(*losses))


def compiled(
    model: ResidentModel,
    sources: Sequence[Mapping[str, torch.Tensor]],
    data: Mapping[str, Packed],
    context: int,
) -> Trial:
    """Measure compiled passes, on a full batch of calibration windows; leaves the model like `halved`.

    Raises NotCompiledError, also where no calibration window is as long as the context.
    """
    rows = model.rows(context)
    batch = full_batch(data, rows, context)
    speeds, losses, seconds = [], [], 0.0
    try:
        for shape in (None, (rows, context)):
            model.load(sources[0])
            model.compiled = shape
            began = time.perf_counter()
            model.token_losses(batch)  # compiles
            seconds = time.perf_counter() - began
            found = []
            for weights in sources:
                model.load(weights)
                found.append(float(model.token_losses(batch)[0].mean(dtype=np.float64)))
            losses.append(found)
            speeds.append(tokens_per_second(model, rows, context))
    finally:
        model.compiled = None
        model.load(sources[-1])
    return Trial(speeds[1] / speeds[0], _change(*losses), seconds, speeds[0])


def full_batch(data: Mapping[str, Packed], rows: int, context: int) -> torch.Tensor:
    """[rows, context] int64: windows of all domains, again and again where they are too few."""
    windows = [w for d in sorted(data) for w in data[d].windows if len(w) == context]
    if not windows:
        raise NotCompiledError(f"no calibration text is as long as a window of {context} tokens")
    return torch.from_numpy(np.stack([windows[i % len(windows)] for i in range(rows)]))


def _change(before: Sequence[float], after: Sequence[float]) -> float:
    """By how much a perplexity changes at most, relatively, from losses in nats a token."""
    moves = [abs(b - a) for a, b in zip(before, after, strict=True)]
    known = all(move < 1 for move in moves)  # NaN is not
    return math.expm1(max(moves)) if known else math.inf
