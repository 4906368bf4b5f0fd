"""Cache of model folders that are made of other files: locked while made, checked, evicted by age.

    FOLDER/NAME-DIGEST-VERSION/    a model folder, with a note of its files
    FOLDER/.NAME-….lock            locked by the process that makes it
    FOLDER/.NAME-….origin          the latest name of its model, to make it again

DIGEST is that of the source files, VERSION that of the conversion. A folder is made hidden and renamed
when it is on disk. Before it is used again its files are compared with the note. The cache is in the
home and may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import blake3

from agent_forge.runs.errors import SourceError, UnavailableError
from agent_forge.runs.home import Home
from agent_forge.runs.system import bounded_files, process_limits

#: Disk budget of all folders of one cache, in bytes; beyond it the least recently used are removed.
DISK_BYTES = 20_000_000_000
#: Seconds after its last use during which a folder is not removed.
LATELY = 3600


def evict(folder: Path, most: int, drop: Callable[[Path], None]) -> None:
    """Call `drop` for the least recently used folders below `folder` until `most` bytes are left.

    A folder stays if it was used within the last hour or if a living process locks it.
    """
    folders, now = [], time.time()
    for place in folder.iterdir():
        with contextlib.suppress(OSError):  # another process just removed it
            if place.is_dir():
                size = sum(map(_share, place.iterdir()))
                folders.append((place.stat().st_mtime, place, size))
    total = sum(size for _, _, size in folders)
    for used, place, size in sorted(folders):
        if total > most and now - used > LATELY and not is_held(place):
            drop(place)
            total -= size


def _share(file: Path) -> int:
    """Return the bytes of a file divided by its number of hard links."""
    status = file.stat()
    return status.st_size // max(1, status.st_nlink)


def is_held(place: Path) -> bool:
    """Return True if a process locks the folder; False if the folder is missing."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def touch(place: Path) -> None:
    """Set a folder's modification time, which is the time of its last use, to now."""
    with contextlib.suppress(OSError):
        os.utime(place)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold an exclusive lock of the file for the block; the kernel releases it if this process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


log = logging.getLogger(__name__)

#: The folders below the home's artifacts: of GGUF files, and of BASE+ADAPTER.
GGUF, ADAPTED = "gguf", "adapted"
#: Bytes of the largest note.
MOST_BYTES = 1 << 16
#: Bytes that are read at once.
CHUNK = 1 << 22
_ADDRESS = re.compile(r"-[0-9a-f]{32}-\d+$")


def cache(kind: str) -> Path:
    """Return the path of the home's cache for `GGUF` or `ADAPTED`."""
    return Home.default().artifacts / kind


def is_cached(folder: Path) -> bool:
    """Return True if a folder, which may be missing, belongs to one of the caches."""
    return folder.parent.name in (GGUF, ADAPTED) and folder.parent == cache(folder.parent.name)


def place(folder: Path, name: str, files: Iterable[Path], version: int) -> Path:
    """Return the path FOLDER/NAME-DIGEST-VERSION of `files`. Raises SourceError for unreadable ones."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:80].lstrip(".") or "model"
    return folder / f"{plain}-{digest(files)[:32]}-{version}"


def named(folder: Path) -> Path:
    """Return the path that the user gave: for a cached folder, that of the file or model behind it."""
    model = origin(folder) if is_cached(folder) else None
    return folder if model is None else Path(model)


def name_of(folder: Path) -> str:
    """Return a cached folder's name without digest and version."""
    return _ADDRESS.sub("", folder.name)


def plain_name(model: Path) -> str:
    """Return the name of a model's folder or GGUF file without digest, version and ".gguf"."""
    return name_of(model) if is_cached(model) else model.name.removesuffix(".gguf")


def digits_of(folder: Path) -> str:
    """Return the 32 hex digits in a cached folder's name, of the BLAKE3 digest of its source files."""
    return folder.name.split("-")[-2]


def settled(
    folder: Path,
    note: str,
    origin: str,
    make: Callable[[Path], Mapping[str, object]],
    publish: Callable[[Path, Callable[[Path], None]], None],
    disk_bytes: int = DISK_BYTES,
) -> Path:
    """Return `folder`, a cached folder, after making it if it is missing or damaged.

    `make` fills a hidden folder and returns the facts for the file `note`; `origin` is the name that
    the user gave, `publish` that of `weights.folders.checkpoint`. Raises the errors of `make`, and
    UnavailableError if the disk lacks space.
    """

    def fill(hidden: Path) -> None:
        words = make(hidden)
        entries = {file.name: _entry(file) for file in sorted(hidden.iterdir())}
        (hidden / note).write_text(json.dumps({**words, "files": entries}, indent=1) + "\n", "utf-8")

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with alone(folder.parent / f".{folder.name}.lock"):
            if not _is_whole(folder, note):
                for rest in folder.parent.glob(f".{folder.name}.*.part"):  # of a killed process
                    shutil.rmtree(rest, ignore_errors=True)
                log.info("making %s of %s", folder, origin)
                publish(folder, fill)
            _origin_file(folder).write_text(origin, "utf-8")
    except OSError as error:
        raise UnavailableError(
            f"{origin} cannot be converted into {folder.parent}: {error.strerror or error}. Free "
            "space, or set FORGE_HOME to a folder on another disk."
        ) from error
    touch(folder)
    evict(folder.parent, disk_bytes, lambda old: shutil.rmtree(old, ignore_errors=True))
    return folder


def check_space(what: str, folder: Path, need: int) -> None:
    """Raise UnavailableError if a disk has fewer than `need` bytes free for a folder."""
    free = shutil.disk_usage(folder).free
    if need > free:
        raise UnavailableError(
            f"{what} becomes a folder of {need / 1e9:.1f} GB, and {folder} has {free / 1e9:.1f} GB "
            "free. Free space, or set FORGE_HOME to a folder on another disk."
        )


def origin(folder: Path) -> str | None:
    """Return the user's name for a cached folder's model; None if unknown; `folder` may be missing."""
    try:
        return bounded_files.read_text(_origin_file(folder), MOST_BYTES)
    except SourceError:
        return None


def _origin_file(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.origin")


def _entry(file: Path) -> dict[str, object]:
    """Return a file's entry in the note: {"size": bytes, "mtime": nanoseconds, "digest": BLAKE3}."""
    state = file.stat()
    return {"size": state.st_size, "mtime": state.st_mtime_ns, "digest": digest((file,))}


def _is_whole(folder: Path, note: str) -> bool:
    """Return True if a folder has the files of its note; only files with a new mtime are read."""
    if not folder.is_dir():
        return False
    try:
        files = bounded_files.read_object(folder / note, MOST_BYTES)["files"]
        whole = all(_is_same(folder / name, entry) for name, entry in files.items())
    except (OSError, SourceError, KeyError, AttributeError, TypeError):
        whole = False
    if not whole:
        log.warning("the folder %s in the cache is damaged: it is made again", folder)
    return whole


def _is_same(file: Path, entry: Mapping[str, object]) -> bool:
    state = file.stat()
    if state.st_size != entry["size"]:
        return False
    return state.st_mtime_ns == entry["mtime"] or digest((file,)) == entry["digest"]


def digest(files: Iterable[Path]) -> str:
    """Return BLAKE3 of the bytes of all files, 64 hex digits. Raises SourceError if one is missing."""
    hasher = blake3.blake3()
    for file in files:
        try:
            with process_limits.reading(file), file.open("rb") as opened:
                while piece := opened.read(CHUNK):
                    hasher.update(piece)
        except OSError as error:
            raise SourceError(f"{file} cannot be read: {error.strerror}.") from error
    return hasher.hexdigest()
