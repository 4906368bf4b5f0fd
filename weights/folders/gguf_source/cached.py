"""Folders of converted GGUF files: a cache of the home, which may be deleted at any time.

    FOLDER/NAME-DIGEST-VERSION/    a model folder, with a note of what it was made of
    FOLDER/.NAME-….lock            held by the process that makes it
    FOLDER/.NAME-….origin          the name that the file was last given by, to convert it again

DIGEST is of the file's bytes, VERSION that of the conversion. A folder is made hidden and renamed when
it is on disk. Before it is used again its files are compared with the note.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import blake3

from runs.errors import SourceError, UnavailableError
from runs.system import bounded_files, open_files
from weights.folders.checkpoint import publish
from weights.folders.gguf_note import MOST_BYTES, NOTE
from weights.folders.gguf_source import header as headers
from weights.folders.kept_folders import DISK_BYTES, alone, evict, touch

log = logging.getLogger(__name__)

#: Increased if the same file gives another folder.
VERSION = 1
#: Bytes that are read at once.
CHUNK = 1 << 22


def folder(file: Path, cache: Path, origin: str, disk_bytes: int = DISK_BYTES) -> Path:
    """Return the model folder of a GGUF file in `cache`, making it if it is missing or damaged.

    `origin` is the name that the file was given by.
    Raise SourceError for a file that is no model here, NotFiniteError for one with NaN or Inf,
    UnavailableError if the disk lacks space.
    """
    header = headers.read(file)
    name = re.sub(r"[^A-Za-z0-9._-]", "_", headers.stem(file))[:80].lstrip(".") or "model"
    place = cache / f"{name}-{_digest(header.files)[:32]}-{VERSION}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with alone(cache / f".{place.name}.lock"):
            if not _is_whole(place):
                _make(header, place)
            _origin_file(place).write_text(origin, "utf-8")
    except OSError as error:
        raise UnavailableError(
            f"{file} cannot be converted into {cache}: {error.strerror or error}. Free space, or set "
            "FORGE_HOME to a folder on another disk."
        ) from error
    touch(place)
    evict(cache, disk_bytes, lambda old: shutil.rmtree(old, ignore_errors=True))
    return place


def origin(place: Path) -> str | None:
    """Return the name of the file that a folder, which may be gone, was made of; None: not known."""
    try:
        return bounded_files.read_text(_origin_file(place), MOST_BYTES)
    except SourceError:
        return None


def _origin_file(place: Path) -> Path:
    return place.with_name(f".{place.name}.origin")


def _make(header: headers.Header, place: Path) -> None:
    """Convert a file; what an earlier process left half done is removed."""
    from weights.folders.gguf_source import conversion  # imports torch and transformers

    for left in place.parent.glob(f".{place.name}.*.part"):
        shutil.rmtree(left, ignore_errors=True)
    model = conversion.prepared(header)
    need, free = conversion.bytes_of(model), shutil.disk_usage(place.parent).free
    if need > free:
        raise UnavailableError(
            f"{header.file} becomes a folder of {need / 1e9:.1f} GB, and {place.parent} has "
            f"{free / 1e9:.1f} GB free. Free space, or set FORGE_HOME to a folder on another disk."
        )
    log.info("converting %s into %s", header.file, place)

    def fill(hidden: Path) -> None:
        conversion.write(model, hidden)
        note = {
            "name": header.file.name,
            "rounded": conversion.rounded(header),
            "files": {file.name: _entry(file) for file in sorted(hidden.iterdir())},
        }
        (hidden / NOTE).write_text(json.dumps(note, indent=1) + "\n", "utf-8")

    publish(place, fill)


def _entry(file: Path) -> dict[str, Any]:
    """Return what the note says of a file: size, time of its last change, digest."""
    state = file.stat()
    return {"size": state.st_size, "mtime": state.st_mtime_ns, "digest": _digest((file,))}


def _is_whole(place: Path) -> bool:
    """Return True if a folder has the files of its note. Only changed files are read whole."""
    if not place.is_dir():
        return False
    try:
        files = bounded_files.read_object(place / NOTE, MOST_BYTES)["files"]
        whole = all(_is_same(place / name, entry) for name, entry in files.items())
    except (OSError, SourceError, KeyError, AttributeError, TypeError):
        whole = False
    if not whole:
        log.warning("the folder %s of a GGUF file is damaged: it is made again", place)
    return whole


def _is_same(file: Path, entry: Mapping[str, Any]) -> bool:
    state = file.stat()
    if state.st_size != entry["size"]:
        return False
    return state.st_mtime_ns == entry["mtime"] or _digest((file,)) == entry["digest"]


def _digest(files: tuple[Path, ...]) -> str:
    """Return BLAKE3 over the bytes of files, 64 hex digits. Raise SourceError if one is gone."""
    hasher = blake3.blake3()
    for file in files:
        try:
            with open_files.reading(file), file.open("rb") as opened:
                while piece := opened.read(CHUNK):
                    hasher.update(piece)
        except OSError as error:
            raise SourceError(f"{file} cannot be read: {error.strerror}.") from error
    return hasher.hexdigest()
