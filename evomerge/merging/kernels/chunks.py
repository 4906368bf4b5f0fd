"""Stretches: one tensor of several models, read and merged a few rows at a time.

Tensors may be larger than the cache, or than the memory that a merge may take. So a merge is some
passes over stretches of whole rows: passes that measure (norms, thresholds), then one that merges.
Each pass reads the inputs again, memory-mapped and as float32 task vectors, which is cheaper than
keeping them.

    work = Stretches("model.norm.weight", base, inputs, pool)
    merge = ties.prepare(work, ...)            # measures, if it must
    for cut in work.cuts: work.run([merge], cut, [out[cut]])

Stretches do not depend on the number of threads, and measurements are combined in the order of the
stretches.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from agent_forge.evomerge.merging.kernels import inner_loops
from agent_forge.evomerge.merging.kernels.fused_merge import StageProgram, stacked
from agent_forge.evomerge.merging.kernels.inner_loops import Stored
from agent_forge.runs.errors import NotFiniteError
from agent_forge.weights.tensors import TensorRows, as_rows

T = TypeVar("T")

#: Elements of a stretch: few enough for the cache, many enough to make Python's overhead small. On
#: a GPU the cache does not matter.
CHUNK, DEVICE_CHUNK = 1 << 18, 1 << 24
#: A tensor is built by one thread if each thread has at least this many times its size to build.
SHARE = 4
#: Pieces of a tensor for each thread, if there are several threads.
PIECES = 8
#: Stretches for each thread that are in work or wait to be taken.
AHEAD = 4

#: (cut, x) → the merged rows: x[0], or a new tensor. x is float32 [1 + inputs, rows, columns]. Its
#: first layer is free to work in; the others are task vectors that must not be written to.
Merge = Callable[[slice, torch.Tensor], torch.Tensor]


def row_cuts(rows: int, columns: int, chunk: int = CHUNK) -> list[slice]:
    """Return the stretches of a tensor: slices of whole rows, about `chunk` elements each."""
    step = max(1, chunk // max(1, columns))
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


class ChunkPool:
    """Thread pool for stretches. Torch is told not to split a stretch further."""

    def __init__(self, threads: int | None = None, device: str = "cpu") -> None:
        self.device = torch.device(device)
        self._before = torch.get_num_threads()
        self.threads = 1 if self.device.type != "cpu" else threads or self._before
        self._executor: ThreadPoolExecutor | None = None

    def __enter__(self) -> ChunkPool:
        if self.threads > 1:
            self._executor = ThreadPoolExecutor(
                self.threads, "stretch", initializer=torch.set_num_threads, initargs=(1,)
            )
        torch.set_num_threads(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
        torch.set_num_threads(self._before)  # MKL has one number for all threads

    def map(self, work: Callable[[slice], T], cuts: Sequence[slice]) -> Iterator[T]:
        """Yield `work(cut)` for each cut, in order; a few cuts are worked on ahead."""
        if self._executor is None or len(cuts) < 2:
            yield from map(work, cuts)
            return
        under_way: deque[Future[T]] = deque()
        for cut in cuts:
            under_way.append(self._executor.submit(work, cut))
            if len(under_way) >= self.threads * AHEAD:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()

    def run(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Return the result of each job, in order. A free thread takes the next job."""
        if self._executor is None:
            return [job() for job in jobs]
        results: dict[int, T] = {}
        left = enumerate(jobs)

        def work() -> None:
            try:
                for number, job in left:
                    results[number] = job()
            except BaseException:
                deque(left, maxlen=0)  # no thread begins another
                raise

        try:
            for future in [self._executor.submit(work) for _ in range(self.threads)]:
                future.result()
        finally:
            deque(left, maxlen=0)
        return [results[number] for number in range(len(jobs))]


class _Scratch(threading.local):
    """Reused float32 memory of one thread: fresh pages cost more than the arithmetic on them."""

    def __init__(self) -> None:
        self._memory: dict[tuple[str, torch.device], torch.Tensor] = {}

    def take(self, place: str, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
        """Return memory in this shape until the next call for the place; contents are undefined."""
        count = math.prod(shape)
        memory = self._memory.get((place, device))
        if memory is None or memory.numel() < count:
            memory = self._memory[place, device] = torch.empty(
                count, dtype=torch.float32, device=device
            )
        return memory[:count].view(shape)


_scratch = _Scratch()


class Stretches:
    """Inputs of one output tensor, [rows, columns] each, and their base (None: they have none).

    With a base the inputs are seen as task vectors, without one as they are.
    """

    def __init__(
        self,
        name: str,
        base: TensorRows | None,
        inputs: Sequence[TensorRows],
        pool: ChunkPool,
        names: Sequence[str] = (),
        dimensions: int = 2,
    ) -> None:
        self.name, self.base, self.inputs = name, base, inputs
        self.pool = pool
        #: Number of dimensions of the tensor itself, which is seen as rows and columns here.
        self.dimensions = dimensions
        #: Names of the inputs in errors.
        self._names = names or [f"input {i}" for i in range(len(inputs))]
        rows, columns = (inputs[0] if base is None else base).shape
        self.rows, self.columns = int(rows), int(columns)
        chunk = CHUNK if pool.device.type == "cpu" else DEVICE_CHUNK
        self.cuts = row_cuts(self.rows, self.columns, chunk)
        self._kept: dict[object, object] = {}

    @property
    def count(self) -> int:
        """Number of inputs."""
        return len(self.inputs)

    @property
    def in_memory(self) -> bool:
        """True if the work is in the processor's memory, where compiled loops can read it."""
        return self.pool.device.type == "cpu"

    @property
    def size(self) -> int:
        """Number of elements of the tensor."""
        return self.rows * self.columns

    def floats(self, rows: TensorRows, cut: slice) -> torch.Tensor:
        """Return a stretch as float32, for reading."""
        part = rows[cut].to(self.pool.device)
        if part.dtype == torch.float32:
            return part
        return _scratch.take("floats", tuple(part.shape), self.pool.device).copy_(part)

    def at(self, cut: slice) -> torch.Tensor:
        """Return float32 x [1 + inputs, rows, columns] of a stretch: from x[1] on, the task vectors.

        x[0] is free to work in. This thread's next call reuses the memory.
        """
        shape = (1 + self.count, cut.stop - cut.start, self.columns)
        x = _scratch.take("x", shape, self.pool.device)
        base = None if self.base is None else self.floats(self.base, cut)
        for layer, rows in zip(x[1:], self.inputs, strict=True):
            part = rows[cut].to(self.pool.device)
            if base is None:
                layer.copy_(part)
            elif part.dtype == torch.float32:
                torch.sub(part, base, out=layer)
            else:  # mixed types in one call are slower
                layer.copy_(part).sub_(base)
        return x

    def some(self, cut: slice, stride: int) -> torch.Tensor:
        """Return only every stride-th element of a stretch, as `at` does: [1 + inputs, 1, elements]."""
        picked = [rows[cut].reshape(-1)[::stride].to(self.pool.device) for rows in self.inputs]
        shape = (1 + self.count, 1, len(picked[0]))
        x = _scratch.take("some", shape, self.pool.device)
        for layer, part in zip(x[1:], picked, strict=True):
            layer.copy_(part)
        if self.base is not None:
            x[1:].sub_(self.base[cut].reshape(-1)[::stride].to(self.pool.device, torch.float32))
        return x

    def each(self, measure: Callable[[slice, torch.Tensor], T]) -> Iterator[T]:
        """Yield `measure(cut, x)` for each stretch, in order."""
        return self.pool.map(lambda cut: measure(cut, self.at(cut)), self.cuts)

    def once(self, key: object, compute: Callable[[], T]) -> T:
        """Return the value under `key`, computed once: several merges of this tensor may need it."""
        if key not in self._kept:
            self._kept[key] = compute()
        return self._kept[key]  # pyright: ignore[reportReturnType]

    def has(self, key: object) -> bool:
        """Return True if a value is cached under `key`."""
        return key in self._kept

    def stored(self, cut: slice) -> Stored:
        """Return a stretch's `Stored`: its addresses and dtypes in memory, for compiled loops."""
        key = ("stored", cut.start, cut.stop)
        if key in self._kept:
            return self._kept[key]  # pyright: ignore[reportReturnType]
        base = None if self.base is None else self.base[cut]
        stretch = Stored([base, *(rows[cut] for rows in self.inputs)])
        if not stretch.copies and all(
            isinstance(r, torch.Tensor) for r in (self.base, *self.inputs) if r is not None
        ):
            self._kept[key] = stretch  # only addresses; other rows would keep contents
        return stretch

    def gram(self) -> NDArray[np.float64]:
        """Return the [inputs, inputs] dot products of the task vectors, float64."""

        def part(cut: slice) -> NDArray[np.float64]:
            if self.in_memory:
                return inner_loops.grams(self.stored(cut))
            return inner_loops.gram(self.at(cut)[1:])

        zero = np.zeros((self.count, self.count))
        return self.once("gram", lambda: sum(self.pool.map(part, self.cuts), zero))

    def run(self, merges: Sequence[Merge], cut: slice, outs: Sequence[torch.Tensor]) -> int:
        """Write a stretch, merged in each way, into `outs`; return 0 if all is finite, else 1 or 2.

        `outs` are [rows, columns] in memory; results are rounded to their dtypes. The code is 1 if an
        input holds NaN or Inf, 2 if only a result does.
        """
        if not outs[0].numel():
            return 0
        if self._compiled(merges, outs):
            stored = self.stored(cut)
            key = ("arguments", *map(id, merges))
            programs = [merge for merge in merges if isinstance(merge, StageProgram)]
            _, arguments = self.once(key, lambda: (programs, stacked(programs)))  # keeps ids valid
            codes = inner_loops.merged(stored, cut.start * self.columns, arguments, outs)
        else:
            x = self.at(cut)
            codes = [0 if finite(x[1:]) else 1]
            for merge, out in zip(merges, outs, strict=True):
                tensor = merge(cut, x)
                out.copy_(tensor if self.base is None else tensor.add_(self.floats(self.base, cut)))
                codes.append(0 if finite(out) else 2)
        return 1 if 1 in codes else max(codes)

    def joined(self, merges: Sequence[Merge]) -> list[slice]:
        """Return the slices of rows merged at a time: several stretches for a compiled loop."""
        if not self.in_memory or not all(isinstance(merge, StageProgram) for merge in merges):
            return self.cuts
        pieces = 1 if self.pool.threads == 1 else self.pool.threads * PIECES
        several = max(1, len(self.cuts) // pieces)
        firsts = range(0, len(self.cuts), several)
        return [slice(self.cuts[i].start, self.cuts[i : i + several][-1].stop) for i in firsts]

    def _compiled(self, merges: Sequence[Merge], outs: Sequence[torch.Tensor]) -> bool:
        """Return True if one call of a compiled loop can do all the merges."""
        return (
            self.in_memory
            and all(isinstance(merge, StageProgram) for merge in merges)
            and all(inner_loops.stores(out.dtype) and out.is_contiguous() for out in outs)
        )

    def check_finite(self) -> None:
        """Raise NotFiniteError naming the input that holds NaN or Inf."""
        everything = [*self.inputs] if self.base is None else [*self.inputs, self.base]
        names = [*self._names, "the base model"]
        for name, rows in zip(names, everything, strict=False):
            if not all(finite(rows[cut]) for cut in self.cuts):  # no pool: its threads call this
                raise NotFiniteError(f"tensor {self.name} of {name} holds NaN or Inf.")


def finite(tensor: torch.Tensor) -> bool:
    """Return True if a tensor holds no NaN and no Inf.

    The sum of a float32 tensor tells; if the sum leaves the range, a second pass does.
    """
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    if tensor.dtype == torch.float32 and bool(torch.isfinite(tensor.sum())):
        return True
    low, high = torch.aminmax(tensor)
    return bool(torch.isfinite(low)) and bool(torch.isfinite(high))


def whole(inputs: Sequence[torch.Tensor], prepare: Callable[[Stretches], Merge]) -> torch.Tensor:
    """Return a new float32 tensor: tensors of one shape merged at once, in one thread."""
    out = torch.empty(inputs[0].shape, dtype=torch.float32)
    with ChunkPool(1) as pool:
        rows = [as_rows(x) for x in inputs]
        work = Stretches("", None, rows, pool, dimensions=inputs[0].dim())
        merge = prepare(work)
        for cut in work.cuts:
            work.run([merge], cut, [as_rows(out)[cut]])
    return out
