"""Sink in files: a stream of safetensors, in any number of shards, with digest, sync and journal.

The header of a shard is known before the first tensor is, so room is taken for all of it at once: a
disk that is too small is found before any work. Tensors come in order of name, stretch by stretch.
The bytes that are hashed are those that are written. A second thread syncs, and then notes in a
journal which tensors are on disk, with their digests. After a crash the noted tensors are read,
checked and kept, and the others are made again.
"""

from __future__ import annotations

import errno
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

import blake3
import torch
from safetensors import safe_open

from agent_forge.events import failpoints
from agent_forge.evomerge.merging.tensor_ops import Plan, TensorOp, Weights
from agent_forge.runs.errors import UnavailableError
from agent_forge.runs.system import process_limits
from agent_forge.weights.folders.checkpoint import INDEX, SHARD_BYTES
from agent_forge.weights.folders.safetensors_places import Place, index_of, places

JOURNAL = ".journal"
#: Bytes between two syncs; bytes of one write call, and how many calls may wait.
SYNC_BYTES = int(os.environ.get("FORGE_MERGE_SYNC_BYTES", 64 << 20))
BATCH_BYTES, BATCHES = 4 << 20, 4


class SafetensorsSink:
    """Sink of a plan's tensors in a folder. Errors leave the journal for the next sink there.

    The calling thread hashes, one thread writes, and one syncs and notes, while more is computed.
    """

    ordered = True

    def __init__(self, folder: Path, plan: Plan, shard_bytes: int = SHARD_BYTES) -> None:
        specs = sorted((op.name, op.dtype, op.shape) for op in plan)
        placements, self._headers = places(specs, shard_bytes)
        self._folder, self._places = folder, {place.name: place for place in placements}
        self._digest = blake3.blake3()
        self._files: dict[str, int] = {}
        #: Tensor → digest of everything up to and with it, as an earlier writer noted it.
        self._done: dict[str, str] = {}
        #: The tensor that was begun, and the chunks of it that are not handed over yet.
        self._begun: tuple[Place, _Batch] | None = None
        self._writes: queue.Queue[_Batch | None] = queue.Queue(BATCHES)
        self._syncs: queue.SimpleQueue[list[tuple[str, str]] | None] = queue.SimpleQueue()
        self._failed: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=work.__name__, daemon=True)
            for work in (self._write, self._sync)
        ]

    def __enter__(self) -> SafetensorsSink:
        journal = self._folder / JOURNAL
        if journal.is_file():
            lines = [line.split(" ", 1) for line in journal.read_text("utf-8").split("\n")[:-1]]
            self._done = {name: digest for digest, name in lines}
        try:
            for file, header in self._headers.items():
                size = max(p.offset + p.size for p in self._places.values() if p.file == file)
                self._files[file] = self._open(self._folder / file, header, size)
        except OSError:
            self._release_space()
            raise
        for thread in self._threads:
            thread.start()
        return self

    def _release_space(self) -> None:
        """Close the files, and remove them, because there is no room for all.

        If an earlier try left tensors there, the files stay.
        """
        for file, descriptor in self._files.items():
            os.close(descriptor)
            if not self._done:
                (self._folder / file).unlink()
        self._files = {}

    def _open(self, path: Path, header: bytes, size: int) -> int:
        """Open a file with room for all of it; return its file descriptor."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                os.posix_fallocate(descriptor, 0, size)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise
                os.ftruncate(descriptor, size)
            os.pwrite(descriptor, header, 0)
        except OSError:
            os.close(descriptor)
            if not self._done:
                path.unlink()  # it has taken the room that was left
            raise
        return descriptor

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._end()
        for descriptor in self._files.values():
            os.close(descriptor)

    def _end(self) -> None:
        """Let the threads finish, and wait for them."""
        if any(thread.is_alive() for thread in self._threads):
            self._writes.put(None)
        for thread in self._threads:
            thread.join()

    def has(self, name: str) -> bool:
        """Return True if an earlier try wrote the tensor to the last bit; it counts as written then."""
        digest = self._done.get(name)
        if digest is None:
            return False
        place, before = self._places[name], self._digest.copy()
        self._hash_head(place)
        for offset in range(0, place.size, BATCH_BYTES):
            size = min(BATCH_BYTES, place.size - offset)
            self._digest.update(os.pread(self._files[place.file], size, place.offset + offset))
        if self._digest.hexdigest() == digest:
            return True
        self._digest, self._done = before, {}
        return False

    def _hash_head(self, place: Place) -> None:
        self._digest.update(f"{place.name}\0{place.dtype}\0{tuple(place.shape)}\0".encode())

    def begin(self, name: str) -> None:
        """Begin a tensor; tensors come in order of name."""
        place = self._places[name]
        self._hash_head(place)
        self._begun = place, _Batch(self._files[place.file], place.offset)

    def room(self, op: TensorOp, rows: slice) -> torch.Tensor:
        """Return memory for a chunk, [rows, columns] of the tensor's dtype."""
        return torch.empty((rows.stop - rows.start, op.shape_2d[1]), dtype=op.dtype)

    def put(self, chunk: torch.Tensor) -> None:
        """Hash the next chunk of the tensor that was begun, and hand it on to be written."""
        assert self._begun is not None
        place, batch = self._begun
        raw = chunk.contiguous().view(-1).view(torch.uint8).numpy().data
        self._digest.update(raw)
        batch.add(raw)
        if batch.size >= BATCH_BYTES:
            self._hand_over(batch)
            self._begun = place, _Batch(batch.file, batch.offset + batch.size)

    def end(self) -> None:
        """End the tensor that was begun."""
        assert self._begun is not None
        place, batch = self._begun
        if batch.offset + batch.size != place.offset + place.size:
            raise AssertionError(f"{place.name}: not {place.size} bytes")
        batch.ends = (place.name, self._digest.hexdigest())
        self._hand_over(batch)
        self._begun = None

    def _hand_over(self, batch: _Batch) -> None:
        while True:
            if self._failed is not None:
                raise self._failed
            try:
                return self._writes.put(batch, timeout=1.0)
            except queue.Full:
                continue

    def _guarded(self, work: Callable[[], None]) -> None:
        """Run a thread's work, and keep its exception for the calling thread."""
        try:
            work()
        except BaseException as error:
            self._failed = self._failed or error
            while work == self._write and self._writes.get() is not None:
                pass  # the caller must not wait for room
        finally:
            if work == self._write:
                self._syncs.put(None)

    def _write(self) -> None:
        """Write batches; hand complete tensors to the thread that syncs."""
        written: list[tuple[str, str]] = []
        unsynced = 0
        while (batch := self._writes.get()) is not None:
            batch.write()
            unsynced += batch.size
            if batch.ends is not None:
                failpoints.hit("merge-tensor-written")
                written.append(batch.ends)
                if unsynced >= SYNC_BYTES:
                    self._syncs.put(written)
                    written, unsynced = [], 0
        self._syncs.put(written)

    def _sync(self) -> None:
        """Sync the files, then note the tensors in the journal."""
        journal = os.open(self._folder / JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            while (written := self._syncs.get()) is not None:
                for descriptor in self._files.values():
                    os.fdatasync(descriptor)
                os.write(journal, "".join(f"{digest} {name}\n" for name, digest in written).encode())
                failpoints.hit("merge-journal-noted")
        finally:
            os.close(journal)

    def digest(self) -> str:
        """Finish the files, and return the BLAKE3 digest of all tensors.

        Everything is on disk, the index is written and the journal is gone then.
        """
        self._end()
        if self._failed is not None:
            raise self._failed
        if len(self._headers) > 1:
            (self._folder / INDEX).write_text(index_of(self._places.values()), "utf-8")
        (self._folder / JOURNAL).unlink()
        return self._digest.hexdigest()


def mapped(folder: Path) -> Weights:
    """Return {name: tensor} of a folder, sorted; memory-mapped, not to be written to."""
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:  # pyright: ignore[reportCallIssue]
            tensors |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    return {name: tensors[name] for name in sorted(tensors)}


class _Batch:
    """Chunks that are written with one call."""

    def __init__(self, file: int, offset: int) -> None:
        self.file, self.offset, self.size = file, offset, 0
        self._parts: list[memoryview] = []
        #: (tensor, digest up to and with it) if the batch is the tensor's last.
        self.ends: tuple[str, str] | None = None

    def add(self, raw: memoryview) -> None:
        """Add a chunk."""
        self._parts.append(raw)
        self.size += len(raw)

    def write(self) -> None:
        """Write the chunks to their place in the file."""
        done = os.pwritev(self.file, self._parts, self.offset) if self._parts else 0
        if done < self.size:  # a signal, a quota: write the rest plainly
            _write_all(self.file, memoryview(b"".join(self._parts))[done:], self.offset + done)


def _write_all(descriptor: int, raw: memoryview, offset: int) -> int:
    done = 0
    while done < len(raw):
        done += os.pwrite(descriptor, raw[done:], offset + done)
    return done


def full(folder: Path, error: OSError) -> UnavailableError:
    """Return the UnavailableError for a disk that cannot be written."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return process_limits.too_many(folder)
    return UnavailableError(
        f"{folder} cannot be written: {error}. Free space or choose another folder; the same command "
        "goes on from what was written."
    )
