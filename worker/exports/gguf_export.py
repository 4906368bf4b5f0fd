"""Export of any model as a GGUF file: looked up by name, checked, written, renamed into place."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evaluation.loading import load_tokenizer
from runs.errors import ConfigError, ConflictError, UnavailableError
from runs.home import Home
from weights.folders.checkpoint import open_checkpoint, sync
from weights.folders.sources import resolve
from weights.formats import byte_bpe, gguf_file
from weights.storage.model_origin import finder

#: First bytes of a GGUF file.
MAGIC = b"GGUF"


def export(
    home: Home,
    model: str,
    out: Path,
    type_: str,
    tell: Callable[[str], None],
    fallback: bool = False,
) -> dict[str, Any]:
    """Write a model as a GGUF file; return what was written, as JSON has it.

    `model` is what other commands take: a folder, a Hub id, RUN (its champion), RUN:ROLE, a registered
    name. An earlier GGUF file at `out` is replaced, and stays if anything goes wrong. With `fallback`
    matrices that a ternary type cannot cut into blocks are F16. Raises
    ConfigError, ConflictError, NotFiniteError, SourceError, UnavailableError.
    """
    place = _target(out)
    given = resolve(model, named=finder(home, tell))
    checkpoint = open_checkpoint(Path(given.path))
    gguf_file.check(checkpoint, type_, fallback)
    rows = checkpoint.config["vocab_size"]
    tokens = byte_bpe.of(load_tokenizer(given.path), rows)
    hidden = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        written = gguf_file.write(checkpoint, tokens, hidden, type_, given.name, fallback)
        os.replace(hidden, place)
        sync(place.parent)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        raise UnavailableError(
            f"{place} cannot be written: {error.strerror}. What was there stays."
        ) from error
    finally:
        hidden.unlink(missing_ok=True)
    return {
        "model": given.name,
        "file": str(place),
        "type": type_,
        "bytes": written.bytes,
        "other_types": list(written.other),
    }


def _target(out: Path) -> Path:
    """Return the absolute file if it may be written; change nothing."""
    place = out.resolve()
    if place.is_dir():
        raise ConfigError(f"{out} is a folder: give the name of a file, such as {out}/model.gguf.")
    if not place.parent.is_dir():
        raise ConfigError(f"there is no folder {place.parent} to write {out} into.")
    if place.exists():
        with place.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ConflictError(f"{out} is there and no GGUF file: choose another name.")
    return place
