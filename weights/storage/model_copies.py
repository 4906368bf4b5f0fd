"""Private copies of models: a run reads its own copy, so that later changes of the files do no harm.

    FOLDER/ADDRESS/           weights, config, tokenizer and templates, named by their content address
    FOLDER/.HASH.incoming/    a copy being made; HASH is of the path of the copied folder
    FOLDER/.HASH.lock         held by the process that makes the copy

The copies are a cache: a missing copy is made again from the files that the user named, and a run
refuses the new copy if its address is not the pinned one. The user's files are only read, never
memory-mapped; only the copies are. A foreign file that is truncated under a memory map would kill
the process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from events import failpoints
from runs.errors import SourceChangedError, SourceError, UnavailableError
from runs.system.digests import checked
from weights.folders import adapter_folders, companions
from weights.folders.checkpoint import INDEX, digest, open_checkpoint, settle, sync, weight_files
from weights.folders.kept_folders import DISK_BYTES, alone, evict, touch

log = logging.getLogger(__name__)

#: File in a copy's folder with the folder that was copied and the stamps of its files.
ORIGIN = "origin.json"

Stamps = dict[str, list[int]]


class Copies:
    """The copies of models that this machine keeps."""

    def __init__(self, folder: Path, disk_bytes: int = DISK_BYTES) -> None:
        self._folder = folder
        self._disk_bytes = disk_bytes
        #: Copy → descriptor with a shared lock: a copy that a living process uses is not evicted.
        self._locks: dict[Path, int] = {}

    def place(self, address: str) -> Path:
        """Return the folder that the copy with this address has or would have."""
        return self._folder / checked(address)

    def find(self, address: str, files: Mapping[str, str]) -> Path | None:
        """Return the copy with this address whose companions have these digests, or None.

        A damaged copy is removed. The caller checks the weights. Raises UnavailableError if the
        copy cannot be read.
        """
        place = self.place(address)
        if not place.is_dir():
            return None
        try:
            open_checkpoint(place)  # raises unless every shard is there and complete
            intact = companions.digests(place) == dict(files)
        except SourceError:
            intact = False
        except OSError as error:  # the machine's fault: the copy may be the last one
            raise UnavailableError(f"the copy {place} cannot be read: {error}.") from error
        if not intact:
            log.warning("the copy %s of a model is damaged: it is removed", address[:12])
            self.drop(place)
            return None
        self._use(place)
        return place

    def take(self, source: Path) -> Path:
        """Copy a model folder; return the copy, which is named by its content address.

        The copy of BASE+ADAPTER has both files of the adapter beside the base's. Its weights are those
        of a copy of the base, if there is one: the same files on the disk under two names.

        Raises SourceError if the folder is not a model, SourceChangedError if the folder is written
        to meanwhile, UnavailableError if the disk lacks space.
        """
        open_checkpoint(source)  # raises an error that names the user's own folder
        files = model_files(source)
        name = hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:16]
        incoming = self._folder / f".{name}.incoming"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with alone(self._folder / f".{name}.lock"):
                shutil.rmtree(incoming, ignore_errors=True)
                try:
                    twins = self._twins(source)
                    self._check_space(source, [f for n, f in files.items() if n not in twins])
                    place = self._copied(source, files, incoming, twins)
                finally:
                    shutil.rmtree(incoming, ignore_errors=True)
        except OSError as error:
            raise UnavailableError(
                f"model {source} cannot be copied to {self._folder}: {error.strerror or error}."
            ) from error
        self._use(place)
        evict(self._folder, self._disk_bytes, self.drop)
        return place

    def _twins(self, source: Path) -> dict[str, Path]:
        """Return the weights of a copy of BASE, for BASE+ADAPTER: name → file; empty if none fits."""
        base, adapter = adapter_folders.parts(source)
        if adapter is None:
            return {}
        for place in self._folder.iterdir():
            if place.name[0] != "." and _made_of(place) == (str(base), stamps(model_files(base))):
                self._use(place)
                return {file.name: place / file.name for file in weight_files(base)}
        return {}

    def _copied(
        self, source: Path, files: Mapping[str, Path], incoming: Path, twins: Mapping[str, Path]
    ) -> Path:
        before = stamps(files)
        incoming.mkdir()
        for name, file in files.items():
            if name in twins:
                os.link(twins[name], incoming / name)
            else:
                _copy(file, incoming / name)
        failpoints.hit("source-copied")
        if stamps(files) != before:
            raise SourceChangedError(
                f"model {source} was written to while it was copied. Start again when its files are "
                "complete."
            )
        weights = digest(open_checkpoint(incoming, source).tensors())
        digests = companions.digests(incoming)
        address = companions.address(weights, digests)
        note = {"folder": str(source), "stamps": before}
        (incoming / ORIGIN).write_text(json.dumps(note, indent=2) + "\n", "utf-8")
        settle(incoming)
        place = self.place(address)
        there = self.find(address, digests)
        if there is not None and digest(open_checkpoint(there).tensors()) != weights:
            self.drop(there)
        try:
            incoming.rename(place)
        except OSError as error:  # a complete copy is there already
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        sync(self._folder)
        failpoints.hit("source-kept")
        return place

    def _check_space(self, source: Path, files: Iterable[Path]) -> None:
        need = sum(file.stat().st_size for file in files)
        free = shutil.disk_usage(self._folder).free
        if need > free:
            raise UnavailableError(
                f"a run reads its own copy of each model, and {source.name} has {need / 1e9:.1f} GB: "
                f"{self._folder} has {free / 1e9:.1f} GB free. Free space, or set FORGE_HOME to a "
                "folder on another disk."
            )

    def _use(self, place: Path) -> None:
        """Hold the copy until this process ends, or this `Copies` object is deleted."""
        touch(place)
        if place not in self._locks:
            self._locks[place] = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._locks[place], fcntl.LOCK_SH)

    def __del__(self) -> None:
        for descriptor in self._locks.values():
            os.close(descriptor)

    def drop(self, place: Path) -> None:
        """Remove a copy; for other processes it is gone at once.

        Processes that have its files open can still read them.
        """
        hidden = place.with_name(f".{place.name[:16]}.{os.getpid()}.dropped")
        with contextlib.suppress(OSError):
            place.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def model_files(model: Path) -> dict[str, Path]:
    """Return the files of a model, which may be BASE+ADAPTER: name in a copy → file.

    Raises SourceError.
    """
    folder, added = adapter_folders.parts(model)[0], adapter_folders.files(model)
    files = {file.name: file for file in weight_files(folder)}
    if (folder / INDEX).is_file():
        files[INDEX] = folder / INDEX
    return files | companions.found(folder) | added


def stamps(files: Mapping[str, Path]) -> Stamps:
    """Return name → inode, size, mtime and ctime in ns: a write to the file changes some of them."""
    stats = {name: file.stat() for name, file in files.items()}
    return {name: [s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns] for name, s in stats.items()}


def written_since(place: Path, source: Path) -> bool:
    """Return True if a copy was made of this folder and its files were written to since."""
    folder, before = _made_of(place)
    if folder != str(source) or not adapter_folders.exists(source):
        return False
    try:
        return stamps(model_files(source)) != before
    except (OSError, SourceError):
        return True


def _made_of(place: Path) -> tuple[str, Stamps]:
    """Return the folder that a copy was made of, and the stamps of its files; empty if unknown."""
    try:
        note = json.loads((place / ORIGIN).read_text("utf-8"))
        return note["folder"], note["stamps"]
    except (OSError, ValueError, LookupError, TypeError):
        return "", {}


def _copy(source: Path, target: Path) -> None:
    """Copy a file's bytes; if the file system can, both files share blocks until one is written."""
    with source.open("rb") as read, target.open("xb") as write:
        try:
            while os.copy_file_range(read.fileno(), write.fileno(), 1 << 30):
                pass
        except OSError:  # the file systems cannot do that: copy the bytes from the start
            read.seek(0)
            write.seek(0)
            write.truncate()
            shutil.copyfileobj(read, write, 1 << 20)
