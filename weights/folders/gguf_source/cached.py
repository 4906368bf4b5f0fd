"""Folders of converted GGUF files, in a cache (`weights.folders.made_folders`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weights.folders import made_folders
from weights.folders.checkpoint import publish
from weights.folders.gguf_note import NOTE
from weights.folders.gguf_source import header as headers
from weights.folders.kept_folders import DISK_BYTES

#: Increased if the same file gives another folder.
VERSION = 1


def folder(file: Path, cache: Path, origin: str, disk_bytes: int = DISK_BYTES) -> Path:
    """Return the model folder of a GGUF file in `cache`, making it if it is missing or damaged.

    `origin` is the name that the file was given by.
    Raise SourceError for a file that is no model here, NotFiniteError for one with NaN or Inf,
    UnavailableError if the disk lacks space.
    """
    header = headers.read(file)
    place = made_folders.place(cache, headers.stem(file), header.files, VERSION)

    def make(hidden: Path) -> Mapping[str, Any]:
        from weights.folders.gguf_source import conversion  # imports torch and transformers

        model = conversion.prepared(header)
        made_folders.check_space(str(header.file), cache, conversion.bytes_of(model))
        conversion.write(model, hidden)
        return {"name": header.file.name, "rounded": conversion.rounded(header)}

    return made_folders.settled(place, NOTE, origin, make, publish, disk_bytes)
