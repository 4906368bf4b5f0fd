"""Safetensors written in a stream, in any number of shards: digest, sync and journal as it goes.

The header of a shard is known before the first tensor is, so room is taken for all of it at once: a
disk that is too small is found before any work. Tensors come in order of name, stretch by stretch;
what is hashed is what is written. A second thread syncs, and then notes in a journal which tensors
are on disk, with their digests: after a crash those are read, checked and kept, the others made again.
"""

from __future__ import annotations

import errno
import json
import os
import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import blake3
import torch

from events import failpoints
from evomerge.checkpoints import INDEX, SINGLE
from evomerge.errors import UnavailableError
from evomerge.tensors import Shape, elements

JOURNAL = ".journal"
#: Bytes between two syncs.
SYNC_BYTES = 64 << 20

_NAMES = {
    torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where a tensor goes."""

    name: str
    dtype: torch.dtype
    shape: Shape
    file: str
    offset: int
    size: int


def places(
    tensors: Sequence[tuple[str, torch.dtype, Shape]], shard_bytes: int
) -> tuple[list[Place], dict[str, bytes]]:
    """Where tensors, in order of name, go, and the header of each file."""
    shards: list[list[tuple[str, torch.dtype, Shape, int]]] = [[]]
    used = 0
    for name, dtype, shape in tensors:
        size = elements(shape) * dtype.itemsize
        if shards[-1] and used + size > shard_bytes:
            shards.append([])
            used = 0
        shards[-1].append((name, dtype, shape, size))
        used += size
    found: list[Place] = []
    headers: dict[str, bytes] = {}
    for number, shard in enumerate(shards, start=1):
        file = (
            SINGLE if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        )
        header = _header(shard)
        headers[file] = header
        offset = len(header)
        for name, dtype, shape, size in shard:
            found.append(Place(name, dtype, shape, file, offset, size))
            offset += size
    return found, headers


def _header(shard: Sequence[tuple[str, torch.dtype, Shape, int]]) -> bytes:
    """Eight bytes of length, then JSON, padded with spaces so that data begins at a multiple of 8."""
    told: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, dtype, shape, size in shard:
        entry = {
            "dtype": _NAMES[dtype],
            "shape": list(shape),
            "data_offsets": [offset, offset + size],
        }
        told[name] = entry
        offset += size
    text = json.dumps(told, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


class Writer:
    """Writes the tensors of `places` into a folder. Errors leave the journal for the next one."""

    def __init__(self, folder: Path, found: Sequence[Place], headers: Mapping[str, bytes]) -> None:
        self._folder, self._places = folder, {place.name: place for place in found}
        self._order = [place.name for place in found]
        self._headers = headers
        self._digest = blake3.blake3()
        self._files: dict[str, int] = {}
        self._done: dict[str, str] = {}
        self._unsynced, self._written = 0, []
        self._syncs: queue.SimpleQueue[list[tuple[str, str]] | None] = queue.SimpleQueue()
        self._failed: BaseException | None = None
        self._syncer = threading.Thread(target=self._sync, name="sync", daemon=True)

    def __enter__(self) -> Writer:
        journal = self._folder / JOURNAL
        if journal.is_file():
            lines = [line.split() for line in journal.read_text("utf-8").split("\n")[:-1]]
            self._done = {json.loads(f'"{line[1]}"'): line[0] for line in lines if len(line) == 2}
        for file, header in self._headers.items():
            size = max(p.offset + p.size for p in self._places.values() if p.file == file)
            self._files[file] = self._open(self._folder / file, header, size)
        self._syncer.start()
        return self

    def _open(self, path: Path, header: bytes, size: int) -> int:
        """A descriptor of the file, with room for all of it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                os.close(descriptor)
                raise
            os.ftruncate(descriptor, size)
        os.pwrite(descriptor, header, 0)
        return descriptor

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._syncs.put(None)
        self._syncer.join()
        for descriptor in self._files.values():
            os.close(descriptor)

    def kept(self, name: str) -> bool:
        """Whether a tensor is there from before, to the last bit; it counts as written then."""
        said = self._done.get(name)
        if said is None:
            return False
        place = self._places[name]
        raw = os.pread(self._files[place.file], place.size, place.offset)
        if len(raw) != place.size or blake3.blake3(raw).hexdigest() != said:
            return False
        self._begin(place)
        self._digest.update(raw)
        return True

    def _begin(self, place: Place) -> None:
        self._digest.update(f"{place.name}\0{place.dtype}\0{tuple(place.shape)}\0".encode())

    def write(self, name: str, stretches: object) -> None:
        """A tensor from its stretches (an iterable of tensors in its dtype, in order)."""
        self._raise()
        place = self._places[name]
        self._begin(place)
        own, offset = blake3.blake3(), place.offset
        for stretch in stretches:  # pyright: ignore[reportGeneralTypeIssues]
            raw = stretch.contiguous().view(-1).view(torch.uint8).numpy().data
            self._digest.update(raw)
            own.update(raw)
            offset += _write_all(self._files[place.file], raw, offset)
        if offset != place.offset + place.size:
            raise AssertionError(f"{name}: {offset - place.offset} bytes instead of {place.size}")
        failpoints.hit("merge-tensor-written")
        self._written.append((name, own.hexdigest()))
        self._unsynced += place.size
        if self._unsynced >= SYNC_BYTES:
            self._hand_over()

    def _hand_over(self) -> None:
        self._syncs.put(self._written)
        self._written, self._unsynced = [], 0

    def _sync(self) -> None:
        """Sync and note, in a thread of its own, while more is computed."""
        journal = os.open(self._folder / JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            while (written := self._syncs.get()) is not None:
                for descriptor in self._files.values():
                    os.fdatasync(descriptor)
                lines = [f"{digest} {json.dumps(name)[1:-1]}\n" for name, digest in written]
                os.write(journal, "".join(lines).encode())
                failpoints.hit("merge-journal-noted")
        except OSError as error:
            self._failed = error
        finally:
            os.close(journal)

    def _raise(self) -> None:
        if self._failed is not None:
            raise self._failed

    def finish(self) -> str:
        """Everything on disk, the index written, the journal gone. The digest of all tensors."""
        self._hand_over()
        self._syncs.put(None)
        self._syncer.join()
        self._raise()
        if len(self._headers) > 1:
            total = sum(place.size for place in self._places.values())
            where = {name: self._places[name].file for name in self._order}
            index = {"metadata": {"total_size": total}, "weight_map": where}
            (self._folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", "utf-8")
        (self._folder / JOURNAL).unlink()
        return self._digest.hexdigest()


def _write_all(descriptor: int, raw: memoryview, offset: int) -> int:
    done = 0
    while done < len(raw):
        done += os.pwrite(descriptor, raw[done:], offset + done)
    return done


def full(folder: Path, error: OSError) -> UnavailableError:
    """What a user is told of a disk that cannot be written."""
    return UnavailableError(
        f"{folder} cannot be written: {error}. Free space or choose another folder; the same command "
        "goes on from what was written."
    )
