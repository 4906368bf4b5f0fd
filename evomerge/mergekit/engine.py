"""Merge engine: a layout → a model folder, out of core, resumable, all or nothing.

Memory is a few stretches, for any size of the models. The folder is made hidden beside its place,
and renamed when everything in it is on disk. A crash leaves the hidden folder; the same merge of
the same files resumes from the tensors that are complete there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from agent_forge.events import failpoints
from agent_forge.evomerge.mergekit import regression
from agent_forge.evomerge.mergekit.inputs import ModelRows
from agent_forge.evomerge.mergekit.parser import ModelPath
from agent_forge.evomerge.mergekit.plan import Layout
from agent_forge.evomerge.mergekit.regression import Regression
from agent_forge.evomerge.merging.execute import Progress, execute
from agent_forge.evomerge.merging.kernels.chunks import ChunkPool
from agent_forge.evomerge.merging.safetensors_sink import SafetensorsSink, full
from agent_forge.evomerge.merging.tensor_ops import TensorOp, TensorSpec, copied
from agent_forge.runs.errors import ConflictError, NotFiniteError, SourceChangedError
from agent_forge.weights.folders.checkpoint import SHARD_BYTES, exchange, settle, sync

PLAN = ".plan"
#: Folder of the blocks that a regression has merged.
SOLVED = ".regression"
#: Counted up if the last bit of a merge changes: a merge that was begun earlier is not resumed.
ARITHMETIC = 3


def merge(
    layout: Layout,
    models: Mapping[ModelPath, ModelRows],
    out: Path,
    fill: Callable[[Path, str], None],
    *,
    seed: int = 0,
    pool: ChunkPool,
    shard_bytes: int = SHARD_BYTES,
    progress: Progress = lambda done, all_, name: None,
    regressed: Regression | None = None,
) -> str:
    """Write the merged model to `out`; return the BLAKE3 digest of its weights.

    With `regressed`, linear layers are merged by it before all others. `fill(folder, digest)` adds
    everything but weights. Raise UnavailableError (disk), ConflictError (another merge writes `out`),
    SourceChangedError or NotFiniteError; nothing is at `out` then.
    """
    hidden = out.parent / f".{out.name}.merging"
    stamps = {str(reference): model.stamp() for reference, model in models.items()}
    identity = _identity(layout, stamps, seed, shard_bytes, regressed)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with _lock_output(out):
            try:
                _begin(hidden, identity)
                plan = [replace(op, seed=seed) for op in layout.outputs]
                if regressed is not None:
                    plan = _plan_with_regression(
                        plan, layout, regressed, hidden / SOLVED, pool, progress
                    )
                return _merged(
                    plan, layout, models, out, hidden, stamps, fill, pool, shard_bytes, progress
                )
            except NotFiniteError:  # resuming would end the same
                shutil.rmtree(hidden, ignore_errors=True)
                raise
    except OSError as error:
        raise full(out, error) from error


@contextmanager
def _lock_output(out: Path) -> Iterator[None]:
    """Lock `out` for this merge. Raise ConflictError if another merge has the lock.

    The lock is a file's, so that the kernel releases it when the process ends.
    """
    path = out.parent / f".{out.name}.lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not path.exists() or path.stat().st_ino != os.fstat(file.fileno()).st_ino:
                raise BlockingIOError("removed by who had it")  # another may have made a new one
        except BlockingIOError as error:
            raise ConflictError(
                f"another merge is writing {out}. Wait for it, or choose another."
            ) from error
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _plan_with_regression(
    plan: Sequence[TensorOp],
    layout: Layout,
    regressed: Regression,
    folder: Path,
    pool: ChunkPool,
    progress: Progress,
) -> list[TensorOp]:
    """Merge linear layers by the models' texts; return the plan, in which these are copied."""

    def tell(done: int, all_: int) -> None:
        progress(done, all_, "blocks by their texts")

    solved = regression.solve(layout, regressed, folder, pool, tell)
    reads = {read.tensor: read for read in layout.sources.merged_before(solved)}
    return [
        copied(op.name, TensorSpec(op.dtype, op.shape), reads[op.name]) if op.name in reads else op
        for op in plan
    ]


def _merged(
    plan: Sequence[TensorOp],
    layout: Layout,
    models: Mapping[ModelPath, ModelRows],
    out: Path,
    hidden: Path,
    stamps: Mapping[str, object],
    fill: Callable[[Path, str], None],
    pool: ChunkPool,
    shard_bytes: int,
    progress: Progress,
) -> str:
    with SafetensorsSink(hidden, plan, shard_bytes) as sink:
        execute([plan], layout.sources, [sink], pool, strict=True, progress=progress)
        _check_unchanged(models, stamps)
        digest = sink.digest()
    failpoints.hit("merge-weights-written")
    shutil.rmtree(hidden / SOLVED, ignore_errors=True)
    fill(hidden, digest)
    settle(hidden)
    failpoints.hit("merge-settled")
    (hidden / PLAN).unlink()
    exchange(hidden, out)
    sync(out.parent)
    return digest


def _identity(
    layout: Layout,
    stamps: Mapping[str, object],
    seed: int,
    shard_bytes: int,
    regressed: Regression | None,
) -> str:
    """Return the hex SHA-256 of all that decides a merge: one that has it can be resumed."""
    parts: list[object] = []
    for op in layout.outputs:
        params = None if op.params is None else op.params.model_dump(mode="json")
        parts.append([op.name, str(op.dtype), op.shape, op.technique, params, op.inputs, op.base])
    words = layout.vocabulary
    if words is not None:
        rules = {token: repr(rule) for token, rule in words.rules.items()}
        parts.append([str(words.donor.folder), words.tokens, rules])
    if regressed is not None:
        parts.append(regressed.record())
    version = [ARITHMETIC, str(torch.__version__)]
    text = json.dumps([parts, stamps, seed, shard_bytes, version], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _begin(hidden: Path, identity: str) -> None:
    """Make an empty hidden folder, or keep the one that the same merge began."""
    hidden.parent.mkdir(parents=True, exist_ok=True)
    plan = hidden / PLAN
    if not plan.is_file() or plan.read_text("utf-8") != identity:
        shutil.rmtree(hidden, ignore_errors=True)
        hidden.mkdir()
        plan.write_text(identity, "utf-8")


def _check_unchanged(models: Mapping[ModelPath, ModelRows], stamps: Mapping[str, object]) -> None:
    """Raise SourceChangedError if a source was written to while it was read."""
    for reference, model in models.items():
        try:
            now = model.stamp()
        except OSError:
            now = None
        if now != stamps[str(reference)]:
            raise SourceChangedError(
                f"model {reference} has changed while it was read. Run the merge again when no "
                "program writes to it."
            )
