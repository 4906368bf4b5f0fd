"""Execution of plans: tensor operations, chunk by chunk, from any sources into any sinks.

    plan(recipe, …) -> execute(plans, sources, sinks) -> sink.digest()

A sink is memory (`MemorySink`) or files (`safetensors_sink.SafetensorsSink`). Several plans share a
pass: operations that read the same tensors are carried out together and share their measurements (dot
products, thresholds). The bits depend on neither the sink, the number of threads nor the plans that
are executed together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
import torch

from agent_forge.evomerge.merging import dataflow, method_registry
from agent_forge.evomerge.merging.kernels.chunks import (
    SHARE,
    ChunkPool,
    Merge,
    Stretches,
    as_rows,
    finite,
    row_cuts,
)
from agent_forge.evomerge.merging.kernels.fused_merge import StageProgram
from agent_forge.evomerge.merging.tensor_ops import Plan, Sources, TensorOp
from agent_forge.evomerge.recipes.recipe import Noise
from agent_forge.runs.errors import NotFiniteError
from agent_forge.weights import buffer_pool, randomness
from agent_forge.weights.buffer_pool import ALIGNED
from agent_forge.weights.folders import checkpoint

#: Tensors that sources are told of before they are needed.
AHEAD = 3

Progress = Callable[[int, int, str], None]


class Sink(Protocol):
    """Destination of a plan's tensors."""

    @property
    def ordered(self) -> bool:
        """True if tensors must come one after another, by name, each chunk by chunk in order."""
        ...

    def has(self, name: str) -> bool:
        """Return True if the tensor is there already, to the last bit."""
        ...

    def begin(self, name: str) -> None:
        """Begin a tensor."""
        ...

    def room(self, op: TensorOp, rows: slice) -> torch.Tensor:
        """Return memory for a chunk, [rows, columns] of the tensor's dtype."""
        ...

    def put(self, chunk: torch.Tensor) -> None:
        """Take a chunk that was written into its `room`; an ordered sink gets chunks in their order."""
        ...

    def end(self) -> None:
        """End the tensor that was begun last."""
        ...

    def digest(self) -> str:
        """Finish, and return the BLAKE3 digest of all tensors."""
        ...


class MemorySink:
    """Sink in memory: the tensors of a plan in one piece, which the next model may get."""

    ordered = False

    @torch.inference_mode(False)
    def __init__(self, plan: Plan) -> None:
        sizes = [-(-op.size * op.dtype.itemsize // ALIGNED) * ALIGNED for op in plan]
        memory, start = buffer_pool.take(sum(sizes)), 0
        #: Tensors by name, in the order of the plan.
        self.weights: dict[str, torch.Tensor] = {}
        for op, size in zip(plan, sizes, strict=True):
            part = memory[start : start + op.size * op.dtype.itemsize]
            self.weights[op.name] = torch.from_numpy(part).view(op.dtype).view(op.shape)
            start += size

    def has(self, name: str) -> bool:
        """Return False: no tensor is there before."""
        return False

    def begin(self, name: str) -> None:
        """Do nothing: tensors come in any order."""

    def room(self, op: TensorOp, rows: slice) -> torch.Tensor:
        """Return the chunk as a view of the tensor itself."""
        return as_rows(self.weights[op.name])[rows]

    def put(self, chunk: torch.Tensor) -> None:
        """Do nothing: the chunk is in its place."""

    def end(self) -> None:
        """Do nothing."""

    def digest(self) -> str:
        """Return the BLAKE3 digest of all tensors."""
        return checkpoint.digest(self.weights)


class _Job:
    """An operation and the sink of its tensor."""

    def __init__(self, op: TensorOp, sink: Sink) -> None:
        self.op, self.sink = op, sink
        #: The whole tensor, if noise is added and the sink cannot hold what it is added to.
        self._whole: torch.Tensor | None = None

    @property
    def key(self) -> object:
        """Key of the operations that read the same and may be carried out together."""
        op = self.op
        return id(self) if op.technique is None else (op.drawn_as, op.base, op.inputs)

    @property
    def _held(self) -> bool:
        return bool(self.op.noises) and (self.sink.ordered or self.op.rounded != self.op.dtype)

    def begin(self) -> None:
        if self._held:
            self._whole = torch.empty(self.op.shape_2d, dtype=self.op.rounded)
        self.sink.begin(self.op.name)

    def room(self, cut: slice) -> torch.Tensor:
        return self.sink.room(self.op, cut) if self._whole is None else self._whole[cut]

    def put(self, chunk: torch.Tensor) -> None:
        if self._whole is None:
            self.sink.put(chunk)

    def end(self, sources: Sources) -> None:
        """Add the noise, which needs the whole tensor, and end the tensor."""
        op, everything = self.op, slice(0, self.op.shape_2d[0])
        if op.noises:
            assert op.origin is not None
            tensor = self.room(everything)
            origin = sources.rows(op.origin)[everything]
            origin = dataflow.scaled(origin, op.origin_factor).to(op.dtype)
            for noise in op.noises:
                add_noise(noise, op.name, origin, tensor)
                tensor = tensor.to(op.dtype)
            if self._whole is not None:
                self._whole = None
                self.put(self.room(everything).copy_(tensor))
        self.sink.end()


@torch.inference_mode(False)  # other threads write into these tensors, and are never in that mode
def execute(
    plans: Sequence[Plan],
    sources: Sources,
    sinks: Sequence[Sink],
    pool: ChunkPool,
    *,
    strict: bool = False,
    progress: Progress = lambda done, all_, name: None,
) -> None:
    """Write the tensors of each plan into its sink; the sinks are of one kind.

    With `strict`, raise NotFiniteError if an input or a result holds NaN or Inf. `progress` is
    called after every tensor of an ordered sink.
    """
    if sinks[0].ordered:
        _in_order(plans, sources, sinks, pool, strict, progress)
    else:
        _side_by_side(plans, sources, sinks, pool, strict)


def _in_order(
    plans: Sequence[Plan],
    sources: Sources,
    sinks: Sequence[Sink],
    pool: ChunkPool,
    strict: bool,
    progress: Progress,
) -> None:
    """Write one tensor after another into the sinks, each with its chunks side by side."""
    by_name = [{op.name: op for op in plan} for plan in plans]
    names = sorted(set().union(*by_name))
    for number, name in enumerate(names):
        first, last = (number + AHEAD - 1 if number else 0), number + AHEAD
        for later in names[first:last]:
            sources.read_ahead([r for ops in by_name if later in ops for r in ops[later].reads])
        jobs = [
            _Job(ops[name], sink)
            for ops, sink in zip(by_name, sinks, strict=True)
            if name in ops and not sink.has(name)
        ]
        for group in _groups(jobs):
            _make(group, sources, pool, strict)
            for job in group:
                job.end(sources)
        progress(number + 1, len(names), name)


def _side_by_side(
    plans: Sequence[Plan], sources: Sources, sinks: Sequence[Sink], pool: ChunkPool, strict: bool
) -> None:
    """Write all tensors, most of them side by side, one thread each, the largest first.

    A tensor that is too large for one thread is made before them, with its chunks side by side. The
    choice changes only the time.
    """
    jobs = [_Job(op, sink) for ops, sink in zip(plans, sinks, strict=True) for op in ops]
    groups = sorted(_groups(jobs), key=lambda group: -group[0].op.size)
    total = sum(group[0].op.size for group in groups)
    alone, most = ChunkPool(1), total // (pool.threads * SHARE)
    for group in groups:
        if group[0].op.size > most:
            _make(group, sources, pool, strict)
    pool.run(
        [
            lambda group=group: _make(group, sources, alone, strict)
            for group in groups
            if group[0].op.size <= most
        ]
    )
    pool.run([lambda job=job: job.end(sources) for job in jobs if job.op.noises])


def _groups(jobs: Iterable[_Job]) -> list[list[_Job]]:
    """Return the jobs in groups of one `key`, which share a pass over what they read."""
    groups: dict[object, list[_Job]] = {}
    for job in jobs:
        groups.setdefault(job.key, []).append(job)
    return list(groups.values())


def _make(jobs: Sequence[_Job], sources: Sources, pool: ChunkPool, strict: bool) -> None:
    """Write the tensors of jobs that read the same into their sinks, all but the noise."""
    op = jobs[0].op
    if op.technique is None:
        _copy(jobs[0], sources)
        return
    base = None if op.base is None else sources.rows(op.base)
    inputs = [sources.rows(read) for read in op.inputs]
    names = [read.model for read in op.inputs]
    work = Stretches(op.drawn_as, base, inputs, pool, names, len(op.shape))
    steps = [(job, _prepare(job.op, work)) for job in jobs]
    fused = [pair for pair in steps if isinstance(pair[1], StageProgram)]
    for pairs in (fused, [pair for pair in steps if not isinstance(pair[1], StageProgram)]):
        if pairs:
            _pass(work, pairs, strict)


def _prepare(op: TensorOp, work: Stretches) -> Merge:
    """Return the `Merge` of one tensor, after the measurements that it needs."""
    assert op.technique is not None
    assert op.params is not None
    return method_registry.prepare(op.technique, work, op.params, op.seed)


def _pass(work: Stretches, pairs: Sequence[tuple[_Job, Merge]], strict: bool) -> None:
    """Write every chunk of one tensor into the jobs' sinks, by all merges in one pass."""
    jobs, merges = [job for job, _ in pairs], [merge for _, merge in pairs]

    def chunk(cut: slice) -> list[torch.Tensor]:
        outs = [job.room(cut) for job in jobs]
        wrong = work.run(merges, cut, outs)
        if wrong and strict:
            _explain(work, jobs, outs)
        for job, out in zip(jobs, outs, strict=True):
            if job.op.factor != 1.0:
                out.copy_(dataflow.scaled(out, job.op.factor))
        return outs

    for job in jobs:
        job.begin()
    cuts = work.cuts if jobs[0].sink.ordered else work.joined(merges)
    for outs in work.pool.map(chunk, cuts):
        for job, out in zip(jobs, outs, strict=True):
            job.put(out)


def _explain(work: Stretches, jobs: Sequence[_Job], outs: Sequence[torch.Tensor]) -> None:
    """Raise NotFiniteError naming the input or result that holds NaN or Inf."""
    work.check_finite()
    for job, out in zip(jobs, outs, strict=True):
        if not finite(out):
            dtype = str(out.dtype).removeprefix("torch.")
            raise NotFiniteError(
                f"tensor {job.op.name} of the result holds NaN or Inf: a value left the range of "
                f"{dtype}. Choose another dtype or smaller weights."
            )


def _copy(job: _Job, sources: Sources) -> None:
    """Write one tensor into its sink as a copy, chunk by chunk."""
    op, rows = job.op, sources.rows(job.op.inputs[0])
    job.begin()
    for cut in row_cuts(*op.shape_2d):
        job.put(job.room(cut).copy_(dataflow.scaled(rows[cut], op.factor)))


def add_noise(noise: Noise, name: str, origin: torch.Tensor, tensor: torch.Tensor) -> None:
    """Add noise to a share of a tensor's elements, in place and in the tensor's dtype.

    An element is touched if its lane (a 16-bit random number) is below the rate. The k-th touched
    element gets the k-th Gaussian value of the tensor's own stream, so the values are not a
    function of a chunk. `origin` is the zero of the task vector that the noise is relative to.
    """
    work = Stretches(name, as_rows(origin), [as_rows(tensor)], ChunkPool(1))
    places = torch.cat([_touched(noise, work, cut) for cut in work.cuts])
    if not len(places):
        return
    values = torch.from_numpy(randomness.gaussian(len(places), noise.seed, name, "noise"))
    if noise.relative_to == "absolute":
        values *= noise.sigma
    else:
        norm = float(work.gram()[0, 0]) ** 0.5
        values *= noise.sigma * norm / float(np.square(values.numpy()).sum()) ** 0.5
    flat = tensor.view(-1)
    flat[places] = (flat[places].to(torch.float32) + values.to(torch.float32)).to(tensor.dtype)


def _touched(noise: Noise, work: Stretches, cut: slice) -> torch.Tensor:
    """Return the indices, in the whole tensor, of a stretch's elements that get noise."""
    start, count = cut.start * work.columns, (cut.stop - cut.start) * work.columns
    lanes = randomness.lanes(count, noise.seed, work.name, "mask", start=start)
    return torch.from_numpy((lanes < round(noise.rate * randomness.LANES)).nonzero()[0] + start)
