"""Folders of models that the server may read: below its roots, or in its own home."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.datastructures import State

from agent_forge.api.schemas.runs import Json
from agent_forge.runs.errors import DataError
from agent_forge.runs.kinds.origin import LogModel
from agent_forge.runs.system import bounded_files
from agent_forge.weights.storage import model_origin
from agent_forge.weights.storage.output_folder import MARK, TRAINED

#: Endings of files that hold weights.
WEIGHTS = (".safetensors", ".forge")
#: Bytes of a file that are read at a time.
CHUNK = 1 << 20


def may_read(state: State, place: Path) -> bool:
    """Return True if a file or folder is below the server's roots, or in its home."""
    home = state.desk.home.folder.resolve()
    return state.options.inside(place) or home in place.resolve().parents


def origin_of(state: State, id_: str) -> tuple[Json, LogModel | None]:
    """Return (entry of the registry, origin or None) of a model. Raises ForgeError."""
    entry = model_origin.entry(state.desk.store, id_)
    return entry, model_origin.find(state.desk.store, entry["id"])


def readable(state: State, entry: Json, origin: LogModel | None) -> list[Path]:
    """Return the folders, or files, of a model that may be read, the best first."""
    paths = [*([entry["path"]] if entry["path"] else []), *(origin.folders if origin else ())]
    cached = state.desk.home.folder / "models" / entry["digest"]
    places = [Path(path) for path in dict.fromkeys(paths)]
    return [p for p in (*places, cached) if p.is_absolute() and may_read(state, p)]


def folder_of(state: State, id_: str) -> tuple[Json, Path | None]:
    """Return (registry entry of a model, first folder with its weights or None). Raises ForgeError."""
    entry, origin = origin_of(state, id_)
    places = readable(state, entry, origin)
    return entry, next((p for p in places if p.exists() and _agrees(p, entry["digest"])), None)


def _agrees(place: Path, digest: str) -> bool:
    """Return True unless a file of the folder says that its weights have another digest.

    A later result may have been written to the same folder.
    """
    for mark in (MARK, TRAINED):
        if (place / mark).is_file():
            with suppress(DataError):
                return bounded_files.read_object(place / mark, error=DataError).get("digest") in (
                    None,
                    digest,
                )
    return True


def files(state: State, folder: Path | None) -> list[Path]:
    """Return the files of a folder, or the file itself: by name, without hidden or forbidden ones."""
    if folder is None:
        return []
    places = sorted(folder.iterdir()) if folder.is_dir() else [folder]
    return [p for p in places if not p.name.startswith(".") and p.is_file() and may_read(state, p)]


def weight_bytes(places: list[Path]) -> int | None:
    """Return the bytes of the files that hold weights; None if there are none."""
    sizes = [place.stat().st_size for place in places if place.suffix in WEIGHTS]
    return sum(sizes) if sizes else None


def sized(state: State, entry: Json) -> Json:
    """Return the entry with `bytes`: of its files, else as recorded, else of a copy in the home."""
    places = Path(entry["path"] or ""), state.desk.home.folder / "models" / entry["digest"]
    there = (p if p.is_absolute() and may_read(state, p) and p.exists() else None for p in places)
    size, copy = (weight_bytes(files(state, place)) for place in there)
    return {**entry, "bytes": size or entry["bytes"] or copy}


def plain_name(entry: Json) -> str:
    """Return a model's name for a folder or file, of letters that every system takes; else its id."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", entry["name"]).strip("-.") or entry["id"]


class _Pipe:
    """A file object that keeps the bytes written to it until `taken` returns them."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, part: bytes) -> int:
        """Keep a part until it is taken; return its number of bytes."""
        self._parts.append(bytes(part))
        return len(part)

    def flush(self) -> None:
        """Do nothing: parts are taken as they are."""

    def taken(self) -> bytes:
        """Return the bytes that were written since the last call, and forget them."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


def zipped(name: str, places: list[Path]) -> Iterator[bytes]:
    """Yield the bytes of a zip of the files, in a folder `name`, piece by piece; none is compressed."""
    pipe: Any = _Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_STORED) as archive:
        for place in places:
            about = zipfile.ZipInfo.from_file(place, f"{name}/{place.name}", strict_timestamps=False)
            with place.open("rb") as file, archive.open(about, "w", force_zip64=True) as entry:
                while part := file.read(CHUNK):
                    entry.write(part)
                    yield pipe.taken()
    yield pipe.taken()
