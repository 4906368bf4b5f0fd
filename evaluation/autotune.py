"""Autotuning: the batch size, dtype and compiled passes that suit an architecture on this machine.

They are measured when a run is started and pinned in the run's profile. The profile names everything
about the machine that can change the last bit of a number.

Batch: forward passes of 1, 2, 4, … windows are timed. The search ends when twice as many windows
are no faster (by 5 %) two times in a row, or do not fit into memory.
Dtype: bfloat16 if the perplexity of every source on the calibration windows changes by at most
`TOLERANCE`. In addition, either the processor has instructions for bfloat16 (`natively`: nothing is
timed), or bfloat16 is timed to be at least a tenth faster (`halved`).
Compiled passes: if they are as much faster with as small a change (`Trial.better`), and a run's
search wins back the seconds that compiling takes (`Trial.pays`).

Speed and memory are also measured for reports. Several models are timed in turns, one pass of each
after the other, so that a busy moment of the machine hits all of them; they are compared by the
median of the turns' ratios. No decision uses these figures.
"""

from __future__ import annotations

import gc
import itertools
import math
import os
import platform
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers

from agent_forge.evaluation.backends.backend import BATCH_TOKENS
from agent_forge.evaluation.backends.inductor import NotCompiledError
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.packing import ItemPack
from agent_forge.evaluation.measures.perplexity import calibration_loss
from agent_forge.runs.errors import UnavailableError
from agent_forge.runs.event_types import Profile
from agent_forge.weights.cost import Speed

#: Most windows in one forward pass.
MOST = 256
#: Most bytes of logits in one forward pass on a CPU.
LOGIT_BYTES = 1 << 30
GAIN, REPETITIONS = 1.05, 3
#: Largest relative change of a perplexity with which another way to compute counts as equal, and
#: the least speed-up (times as fast) for which it is chosen.
TOLERANCE, FASTER = 0.005, 1.1
#: Tokens of a domain that `natively` reads: a change of the same tokens' loss varies little.
READ = 1024
#: Flags in `PROCESSORS` of processors that multiply in bfloat16: x86 (AVX-512, AMX) and ARM.
BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
PROCESSORS = Path("/proc/cpuinfo")


def batch(model: ResidentModel, context: int, most: int = MOST) -> dict[int, float]:
    """Return {tokens of a forward pass: tokens a second}, timed with the loaded weights.

    Passes have 1, 2, 4, … windows, at most `most`. If memory runs out, the largest batch that fitted is
    left out too (unless it is one window), because other passes need more memory. Wall-clock:
    another call gives other numbers. Raises torch.OutOfMemoryError if a single window does not fit.
    """
    speeds: dict[int, float] = {}
    fastest, flat, rows = 0.0, 0, 1
    while rows <= min(most, MOST) and flat < 2:
        bounded = model.device.type == "cpu"  # a GPU raises OutOfMemoryError by itself
        if bounded and rows > 1 and rows * context * model.vocabulary * 4 > LOGIT_BYTES:
            break
        try:
            speed = tokens_per_second(model, rows, context)
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
            torch.cuda.empty_cache()
            if rows > 2:
                del speeds[rows // 2 * context]
            break
        speeds[rows * context] = speed
        flat = flat + 1 if speed < GAIN * fastest else 0
        fastest = max(fastest, speed)
        rows *= 2
    return speeds


def chosen(speeds: Mapping[int, float]) -> int:
    """Return the smallest batch, in tokens, within 5 % of the fastest."""
    fastest = max(speeds.values())
    return min(tokens for tokens, speed in speeds.items() if speed * GAIN >= fastest)


def tokens_per_second(model: ResidentModel, rows: int, context: int) -> float:
    """Return tokens a second in the fastest of a few passes of [rows, context], with losses."""
    ids = torch.zeros((rows, context), dtype=torch.int64)
    times = []
    for _ in range(REPETITIONS + 1):  # the first one prepares
        began = time.perf_counter()
        model.token_losses(ids)  # the results are on the CPU, so a GPU has finished
        times.append(time.perf_counter() - began)
    return rows * context / min(times[1:])


@dataclass(frozen=True)
class Trial:
    """Measured comparison of another way to compute (dtype, compiled) with the models' own."""

    #: How many times as fast as the models' own way.
    ratio: float
    #: The largest relative change of a source's perplexity.
    change: float
    #: Seconds of preparation before the first pass (compiling).
    seconds: float = 0.0
    #: Tokens a second of the models' own way.
    speed: float = 0.0

    @property
    def better(self) -> bool:
        """True if it is at least `FASTER` times as fast and changes at most by `TOLERANCE`."""
        return self.ratio >= FASTER and self.change <= TOLERANCE

    def pays(self, tokens: float) -> bool:
        """Return True if it is better, and evaluating `tokens` tokens saves more than `seconds`."""
        return self.better and tokens / self.speed * (1 - 1 / self.ratio) > self.seconds


def natively(
    model: ResidentModel, sources: Sequence[Mapping[str, torch.Tensor]], data: Mapping[str, ItemPack]
) -> bool:
    """Return True if bfloat16 is native to the device and changes no source's perplexity by more
    than `TOLERANCE`. Nothing is timed: another call on the same machine gives the same result.

    False if all sources are in bfloat16 already. Leaves the model as `halved` does.
    """
    kinds = {tensor.dtype for weights in sources for tensor in weights.values()}
    if not has_bfloat16(model.device) or kinds <= {torch.bfloat16}:
        return False
    own_dtype, losses = model.dtype, []
    try:
        for dtype in (own_dtype, torch.bfloat16):
            model.dtype = dtype
            losses.append([calibration_loss(model, w, data, READ) for w in sources])
    finally:
        model.dtype = own_dtype
        model.load(sources[-1])
    return _change(*losses) <= TOLERANCE


def has_bfloat16(device: torch.device) -> bool:
    """Return True if the device has instructions that multiply in bfloat16.

    For a CPU the kernel's list of flags decides; without that list (not Linux) the result is False.
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
    data: Mapping[str, ItemPack],
    context: int,
) -> Trial:
    """Return the `Trial` of bfloat16: its speed-up and change of perplexity beside the own dtype.

    The model keeps its dtype; afterwards the last source's weights are loaded.
    """
    own_dtype, rows = model.dtype, model.rows(context)
    speeds, losses = [], []
    try:
        for dtype in (own_dtype, torch.bfloat16):
            model.dtype = dtype
            losses.append([calibration_loss(model, weights, data) for weights in sources])
            speeds.append(tokens_per_second(model, rows, context))
    finally:
        model.dtype = own_dtype
        model.load(sources[-1])
    return Trial(speeds[1] / speeds[0], _change(*losses))


def compiled(
    model: ResidentModel,
    sources: Sequence[Mapping[str, torch.Tensor]],
    data: Mapping[str, ItemPack],
    context: int,
) -> Trial:
    """Return the `Trial` of compiled passes: speed-up, change, seconds; on a full calibration batch.

    Leaves the model as `halved` does. Raises NotCompiledError, also if no calibration window is as
    long as the context.
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
            batch_losses = []
            for weights in sources:
                model.load(weights)
                batch_losses.append(float(model.token_losses(batch)[0].mean(dtype=np.float64)))
            losses.append(batch_losses)
            speeds.append(tokens_per_second(model, rows, context))
    finally:
        model.compiled = None
        model.load(sources[-1])
    return Trial(speeds[1] / speeds[0], _change(*losses), seconds, speeds[0])


def full_batch(data: Mapping[str, ItemPack], rows: int, context: int) -> torch.Tensor:
    """Return [rows, context] int64 ids: windows of all domains, repeated if they are too few.

    Raises NotCompiledError if no window is as long as the context.
    """
    windows = [w for d in sorted(data) for w in data[d].windows if len(w) == context]
    if not windows:
        raise NotCompiledError(f"no calibration text is as long as a window of {context} tokens")
    return torch.from_numpy(np.stack([windows[i % len(windows)] for i in range(rows)]))


def _change(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the largest relative change of a perplexity; the arguments are losses in nats a token.

    Infinite if a loss changes by 1 nat or more, or is NaN.
    """
    moves = [abs(b - a) for a, b in zip(before, after, strict=True)]
    is_finite = all(move < 1 for move in moves)  # False for NaN
    return math.expm1(max(moves)) if is_finite else math.inf


#: Flags of x86 processors for which the libraries of matrix products have code of its own.
FURTHER_FLAGS = {"avx512_fp16": "fp16", "amx_tile": "amx"}
#: Lines of /proc/cpuinfo that name who made a processor, on x86 and on ARM.
_MAKER = re.compile(r"^(?:vendor_id|CPU implementer)\s*:\s*(\S+)", re.MULTILINE)


def processor() -> str:
    """Return the processor's architecture, maker and instruction sets in one line of text.

    They decide which code a library takes for a matrix product. MKL adds in another order on another
    maker's processor, even if both have the same instructions.
    """
    try:
        content = PROCESSORS.read_text("utf-8", "replace")
    except OSError:  # not Linux
        content = ""
    flags = set(content.split())
    parts = [platform.machine(), *_MAKER.findall(content)[:1], torch.backends.cpu.get_cpu_capability()]
    parts += [name for flag, name in FURTHER_FLAGS.items() if flag in flags]
    if has_bfloat16(torch.device("cpu")):  # emulated bfloat16 rounds sums differently
        parts.append("bf16")
    return " ".join(parts)


def unsuited(differences: Sequence[str], more: str = "") -> UnavailableError:
    """Return the UnavailableError for a process that computes other numbers than a run is pinned to.

    `more`: what else can be set beside the number of threads.
    """
    return UnavailableError(
        "this process does not match the profile that the run is pinned to: "
        f"{'; '.join(differences)}. Resume it where it was started (FORGE_THREADS sets the number of "
        f"threads{more})."
    )


def machine_profile(device: str, dtype: str = "", attention: str = "") -> Profile:
    """Return the Profile of a device: all facts that can change the last bit of a number there."""
    machine = processor()
    if device.startswith("cuda"):
        machine += f" {torch.cuda.get_device_name(torch.device(device))}"
    return Profile(
        device=device,
        dtype=dtype,
        threads=torch.get_num_threads(),
        batch_tokens=BATCH_TOKENS,
        attention=attention,
        machine=machine,
        torch=str(torch.__version__),
        transformers=transformers.__version__,
        numpy=np.__version__,
    )


@dataclass(frozen=True)
class SpeedComparison:
    """A model's speed, and how it compares with the first model's."""

    speed: Speed
    #: How many times as fast as the first model: median, least and most of the turns.
    ratio: float
    least: float
    most: float


def measure(model: ResidentModel, context: int, repetitions: int = 5, most: int | None = None) -> Speed:
    """Return the loaded model's Speed (with latency and peak memory) in passes of ≤ `most` windows.

    Wall-clock: another call gives other numbers.
    """
    return paired([model], context, repetitions, most)[0].speed


def paired(
    models: Sequence[ResidentModel], context: int, repetitions: int = 5, most: int | None = None
) -> list[SpeedComparison]:
    """Return a list of each model's speed and its ratio to the first's; passes are timed in turns."""
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
        result.append(SpeedComparison(speed, statistics.median(ratios), min(ratios), max(ratios)))
    return result


def _seconds(model: ResidentModel, ids: torch.Tensor) -> float:
    started = time.perf_counter()
    model.token_losses(ids)  # the results are on the CPU, so a GPU has finished
    return time.perf_counter() - started


def _peak(model: ResidentModel, ids: torch.Tensor) -> int:
    """Return the most bytes of tensors that a forward pass holds beyond what is allocated before it.

    The first pass warms up. Scratch memory that libraries take past PyTorch's allocator is not counted.
    The kernel's figures of the process are of no use: other threads give memory back meanwhile, and
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
