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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from events import failpoints
from evomerge.mergekit.inputs import Model
from evomerge.mergekit.parser import Reference
from evomerge.mergekit.plan import Layout
from evomerge.merging.execute import Progress, execute
from evomerge.merging.kernels.chunks import Pool
from evomerge.merging.safetensors_sink import SafetensorsSink, full
from runs.errors import ConflictError, NotFiniteError, SourceChangedError
from weights.folders.checkpoint import SHARD_BYTES, exchange, settle, sync

PLAN = ".plan"
#: Counted up if the last bit of a merge changes: a merge that was begun earlier is not resumed.
ARITHMETIC = 3


def merge(
    layout: Layout,
    models: Mapping[Reference, Model],
    out: Path,
    fill: Callable[[Path, str], None],
    *,
    seed: int = 0,
    pool: Pool,
    shard_bytes: int = SHARD_BYTES,
    progress: Progress = lambda done, all_, name: None,
) -> str:
    """Write the merged model to `out`; return the digest of its weights.

    `fill(folder, digest)` adds everything but weights. Raise UnavailableError (disk), ConflictError
    (another merge writes `out`), SourceChangedError or NotFiniteError; nothing is at `out` then.
    """
    hidden = out.parent / f".{out.name}.merging"
    stamps = {str(reference): model.stamp() for reference, model in models.items()}
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with _alone(out):
            try:
                return _merged(
                    layout, models, out, hidden, stamps, fill, seed, pool, shard_bytes, progress
                )
            except NotFiniteError:  # resuming would end the same
                shutil.rmtree(hidden, ignore_errors=True)
                raise
    except OSError as error:
        raise full(out, error) from error


@contextmanager
def _alone(out: Path) -> Iterator[None]:
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


def _merged(
    layout: Layout,
    models: Mapping[Reference, Model],
    out: Path,
    hidden: Path,
    stamps: Mapping[str, Any],
    fill: Callable[[Path, str], None],
    seed: int,
    pool: Pool,
    shard_bytes: int,
    progress: Progress,
) -> str:
    _begin(hidden, _identity(layout, stamps, seed, shard_bytes))
    plan = [replace(op, seed=seed) for op in layout.outputs]
    with SafetensorsSink(hidden, plan, shard_bytes) as sink:
        execute([plan], layout.sources, [sink], pool, strict=True, progress=progress)
        _check_unchanged(models, stamps)
        digest = sink.digest()
    failpoints.hit("merge-weights-written")
    fill(hidden, digest)
    settle(hidden)
    failpoints.hit("merge-settled")
    (hidden / PLAN).unlink()
    exchange(hidden, out)
    sync(out.parent)
    return digest


def _identity(layout: Layout, stamps: Mapping[str, Any], seed: int, shard_bytes: int) -> str:
    """Return the identity of a merge: a hidden folder of the same identity can be resumed."""
    told: list[Any] = []
    for op in layout.outputs:
        params = None if op.params is None else op.params.model_dump(mode="json")
        told.append([op.name, str(op.dtype), op.shape, op.technique, params, op.inputs, op.base])
    words = layout.vocabulary
    if words is not None:
        rules = {token: repr(rule) for token, rule in words.rules.items()}
        told.append([str(words.donor.folder), words.tokens, rules])
    version = [ARITHMETIC, str(torch.__version__)]
    text = json.dumps([told, stamps, seed, shard_bytes, version], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _begin(hidden: Path, identity: str) -> None:
    """Make the hidden folder, empty unless it was begun by the same merge."""
    hidden.parent.mkdir(parents=True, exist_ok=True)
    plan = hidden / PLAN
    if not plan.is_file() or plan.read_text("utf-8") != identity:
        shutil.rmtree(hidden, ignore_errors=True)
        hidden.mkdir()
        plan.write_text(identity, "utf-8")


def _check_unchanged(models: Mapping[Reference, Model], stamps: Mapping[str, Any]) -> None:
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
