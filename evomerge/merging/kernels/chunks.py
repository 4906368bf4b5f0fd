"""One tensor of several models, worked on a stretch at a time.

A merge of tensors larger than the cache, or than the memory that we want to take, is some passes
over stretches of whole rows: passes that measure (norms, thresholds), then one that merges. Each pass
reads the inputs anew, memory-mapped and as float32 task vectors; that is cheaper than keeping them.

    work = Stretches("model.norm.weight", base, inputs, pool)
    merge = ties.prepare(work, ...)            # measures, where it must
    for cut in work.cuts: work.run([merge], cut, [out[cut]])

Stretches do not depend on the number of threads, and what is measured is put together in their order.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from evomerge.merging.kernels import inner_loops
from evomerge.merging.kernels.fused_merge import Program, stacked
from evomerge.merging.kernels.inner_loops import Stored
from runs.errors import NotFiniteError

T = TypeVar("T")

#: Elements of a stretch: few enough for the cache, many enough for Python. On a GPU there is no cache
#: to think of.
CHUNK, DEVICE_CHUNK = 1 << 18, 1 << 24
#: A tensor is one thread's work where each thread has so many of its size to do.
SHARE = 4
#: Pieces of a tensor that each of several threads does.
PIECES = 8
#: Stretches that are worked on or wait to be taken, for each thread.
AHEAD = 4

#: (cut, x): x is float32 [1 + inputs, rows, columns], its first layer free to work in, the others task
#: vectors not to be written to. The merged rows: x[0], or a new tensor.
Merge = Callable[[slice, torch.Tensor], torch.Tensor]


class Rows(Protocol):
    """A tensor as [rows, columns] that gives stretches of its rows."""

    @property
    def shape(self) -> torch.Size: ...  # noqa: D102

    def __getitem__(self, cut: slice, /) -> torch.Tensor: ...


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """[rows, columns] view: an output feature a row; a vector is a column."""
    if tensor.dim() < 2:
        return tensor.reshape(-1, 1)
    return tensor.reshape(tensor.shape[0], math.prod(tensor.shape[1:]))


class Pool:
    """Threads that work on stretches. Torch is told not to split what is a stretch already."""

    def __init__(self, threads: int | None = None, device: str = "cpu") -> None:
        self.device = torch.device(device)
        self._before = torch.get_num_threads()
        self.threads = 1 if self.device.type != "cpu" else threads or self._before
        self._executor: ThreadPoolExecutor | None = None

    def __enter__(self) -> Pool:
        if self.threads > 1:
            self._executor = ThreadPoolExecutor(
                self.threads, "stretch", initializer=torch.set_num_threads, initargs=(1,)
            )
        torch.set_num_threads(1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
        torch.set_num_threads(self._before)  # MKL's number is one for all threads

    def map(self, work: Callable[[slice], T], cuts: Sequence[slice]) -> Iterator[T]:
        """What `work` gives for each, in order; a few are worked on before they are taken."""
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
        """What each of them gives. A thread takes the next as soon as it has done one."""
        if self._executor is None:
            return [job() for job in jobs]
        found: dict[int, T] = {}
        left = enumerate(jobs)

        def work() -> None:
            try:
                for number, job in left:
                    found[number] = job()
            except BaseException:
                deque(left, maxlen=0)  # nobody begins another
                raise

        try:
            for future in [self._executor.submit(work) for _ in range(self.threads)]:
                future.result()
        finally:
            deque(left, maxlen=0)
        return [found[number] for number in range(len(jobs))]


class _Scratch(threading.local):
    """A thread's reused float32 memory: fresh pages cost more than the arithmetic on them."""

    def __init__(self) -> None:
        self._memory: dict[tuple[str, torch.device], torch.Tensor] = {}

    def take(self, place: str, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
        """Memory in this shape, whatever is in it, until the next call for the place."""
        count = math.prod(shape)
        kept = self._memory.get((place, device))
        if kept is None or kept.numel() < count:
            kept = self._memory[place, device] = torch.empty(
                count, dtype=torch.float32, device=device
            )
        return kept[:count].view(shape)


_scratch = _Scratch()


class Stretches:
    """The inputs of one output tensor, [rows, columns] each, and their base (None: they have none).

    With a base the inputs are seen as task vectors, without one as they are.
    """

    def __init__(
        self,
        name: str,
        base: Rows | None,
        inputs: Sequence[Rows],
        pool: Pool,
        names: Sequence[str] = (),
    ) -> None:
        self.name, self.base, self.inputs = name, base, inputs
        self.pool = pool
        #: What the inputs are called in errors.
        self._names = names or [f"input {i}" for i in range(len(inputs))]
        rows, columns = (inputs[0] if base is None else base).shape
        self.rows, self.columns = int(rows), int(columns)
        chunk = CHUNK if pool.device.type == "cpu" else DEVICE_CHUNK
        step = max(1, chunk // max(1, self.columns))
        self.cuts = [slice(s, min(s + step, self.rows)) for s in range(0, self.rows, step)]
        self._kept: dict[object, object] = {}

    @property
    def count(self) -> int:
        """How many inputs there are."""
        return len(self.inputs)

    @property
    def in_memory(self) -> bool:
        """Whether it is worked on in the processor's memory, where compiled loops can read it."""
        return self.pool.device.type == "cpu"

    @property
    def size(self) -> int:
        """Elements of the tensor."""
        return self.rows * self.columns

    def floats(self, rows: Rows, cut: slice) -> torch.Tensor:
        """A stretch as float32, for reading."""
        part = rows[cut].to(self.pool.device)
        if part.dtype == torch.float32:
            return part
        return _scratch.take("floats", tuple(part.shape), self.pool.device).copy_(part)

    def at(self, cut: slice) -> torch.Tensor:
        """[1 + inputs, rows, columns] float32 of a stretch; this thread's next call reuses it."""
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
        """As `at`, of every stride-th element, and no other is computed: [1 + inputs, 1, elements]."""
        picked = [rows[cut].reshape(-1)[::stride].to(self.pool.device) for rows in self.inputs]
        shape = (1 + self.count, 1, len(picked[0]))
        x = _scratch.take("some", shape, self.pool.device)
        for layer, part in zip(x[1:], picked, strict=True):
            layer.copy_(part)
        if self.base is not None:
            x[1:].sub_(self.base[cut].reshape(-1)[::stride].to(self.pool.device, torch.float32))
        return x

    def each(self, measure: Callable[[slice, torch.Tensor], T]) -> Iterator[T]:
        """What `measure(cut, x)` gives for each stretch, in order."""
        return self.pool.map(lambda cut: measure(cut, self.at(cut)), self.cuts)

    def once(self, key: object, compute: Callable[[], T]) -> T:
        """A thing that was computed for this tensor before: several merges may need the same."""
        if key not in self._kept:
            self._kept[key] = compute()
        return self._kept[key]  # pyright: ignore[reportReturnType]

    def has(self, key: object) -> bool:
        """Whether it was computed."""
        return key in self._kept

    def stored(self, cut: slice) -> Stored:
        """A stretch where it is in memory, for compiled loops."""
        key = ("stored", cut.start, cut.stop)
        if key in self._kept:
            return self._kept[key]  # pyright: ignore[reportReturnType]
        base = None if self.base is None else self.base[cut]
        made = Stored([base, *(rows[cut] for rows in self.inputs)])
        if not made.copies and all(
            isinstance(r, torch.Tensor) for r in (self.base, *self.inputs) if r is not None
        ):
            self._kept[key] = made  # addresses; of others it would be their contents
        return made

    def gram(self) -> NDArray[np.float64]:
        """[inputs, inputs] dot products of the task vectors, float64."""

        def part(cut: slice) -> NDArray[np.float64]:
            if self.in_memory:
                return inner_loops.grams(self.stored(cut))
            return inner_loops.gram(self.at(cut)[1:])

        zero = np.zeros((self.count, self.count))
        return self.once("gram", lambda: sum(self.pool.map(part, self.cuts), zero))

    def run(self, merges: Sequence[Merge], cut: slice, outs: Sequence[torch.Tensor]) -> int:
        """Merge a stretch in one way or several, rounded into `outs` [rows, columns] in memory.

        0, or 1 where what went in holds NaN or Inf, or 2 where only what came out does.
        """
        if not outs[0].numel():
            return 0
        if self._compiled(merges, outs):
            stored = self.stored(cut)
            key = ("arguments", *map(id, merges))
            programs = [merge for merge in merges if isinstance(merge, Program)]
            _, arguments = self.once(key, lambda: (programs, stacked(programs)))  # ids stay theirs
            told = inner_loops.merged(stored, cut.start * self.columns, arguments, outs)
        else:
            x = self.at(cut)
            told = [0 if finite(x[1:]) else 1]
            for merge, out in zip(merges, outs, strict=True):
                made = merge(cut, x)
                out.copy_(made if self.base is None else made.add_(self.floats(self.base, cut)))
                told.append(0 if finite(out) else 2)
        return 1 if 1 in told else max(told)

    def joined(self, merges: Sequence[Merge]) -> list[slice]:
        """What is merged in memory at a time: by a compiled loop, several stretches."""
        if not self.in_memory or not all(isinstance(merge, Program) for merge in merges):
            return self.cuts
        pieces = 1 if self.pool.threads == 1 else self.pool.threads * PIECES
        several = max(1, len(self.cuts) // pieces)
        firsts = range(0, len(self.cuts), several)
        return [slice(self.cuts[i].start, self.cuts[i : i + several][-1].stop) for i in firsts]

    def _compiled(self, merges: Sequence[Merge], outs: Sequence[torch.Tensor]) -> bool:
        """Whether all of it is one call of a compiled loop."""
        return (
            self.in_memory
            and all(isinstance(merge, Program) for merge in merges)
            and all(inner_loops.stores(out.dtype) and out.is_contiguous() for out in outs)
        )

    def check_finite(self) -> None:
        """Raise NotFiniteError naming the input that holds NaN or Inf."""
        everything = [*self.inputs] if self.base is None else [*self.inputs, self.base]
        names = [*self._names, "the base model"]
        for name, rows in zip(names, everything, strict=False):
            if not all(finite(rows[cut]) for cut in self.cuts):  # our threads may be those who ask
                raise NotFiniteError(f"tensor {self.name} of {name} holds NaN or Inf.")


def finite(tensor: torch.Tensor) -> bool:
    """Whether nothing in it is NaN or Inf. A sum, and where that leaves the range, a second pass."""
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    if tensor.dtype == torch.float32 and bool(torch.isfinite(tensor.sum())):
        return True
    low, high = torch.aminmax(tensor)
    return bool(torch.isfinite(low)) and bool(torch.isfinite(high))


def whole(inputs: Sequence[torch.Tensor], prepare: Callable[[Stretches], Merge]) -> torch.Tensor:
    """A merge of float32 tensors of one shape, here and now; a new float32 tensor."""
    out = torch.empty(inputs[0].shape, dtype=torch.float32)
    with Pool(1) as pool:
        work = Stretches("", None, [as_rows(x) for x in inputs], pool)
        merge = prepare(work)
        for cut in work.cuts:
            work.run([merge], cut, [as_rows(out)[cut]])
    return out
