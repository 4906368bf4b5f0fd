"""Export of any model as a GGUF file: looked up by name, checked, written, renamed into place.

`python -m worker.exports.gguf_export MODEL FILE TYPE` writes one in a process of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from evaluation.loading import load_tokenizer
from runs.errors import ConfigError, ConflictError, ForgeError, UnavailableError
from runs.home import Home
from weights.folders.checkpoint import open_checkpoint, sync
from weights.folders.sources import resolve
from weights.formats import gguf_file, gguf_tokens
from weights.storage.model_origin import Finder
from worker.exports import modelfile

Result = TypeVar("Result")

#: First bytes of a GGUF file.
MAGIC = b"GGUF"


def export(
    home: Home,
    model: str,
    out: Path,
    type_: str,
    tell: Callable[[str], None],
    ollama: bool = False,
    fallback: bool = False,
) -> dict[str, Any]:
    """Write a model as a GGUF file; return what was written, as JSON has it.

    `model` is what other commands take: a folder, a Hub id, RUN (its champion), RUN:ROLE, a registered
    name. An earlier GGUF file at `out` is replaced, and stays if anything goes wrong. `ollama` writes a
    Modelfile beside it. With `fallback` matrices that a ternary type cannot cut into blocks are F16.
    Raises ConfigError, ConflictError, NotFiniteError, SourceError, UnavailableError.
    """
    place = _target(out)
    beside = _modelfile(place) if ollama else None
    given = resolve(model, named=Finder(home, tell))
    checkpoint = open_checkpoint(Path(given.path))
    gguf_file.check(checkpoint, type_, fallback)
    rows = checkpoint.config["vocab_size"]
    tokenizer = load_tokenizer(given.path)
    tokens = gguf_tokens.of(tokenizer, rows)
    more: dict[str, Any] = {}
    text = ""
    if beside is not None:
        positions = checkpoint.config["max_position_embeddings"]
        described = modelfile.of(tokenizer, place.name, positions, tokens.begins)
        text, more = described.text, {"modelfile": str(beside), "template": described.note}

    def fill(hidden: Path) -> gguf_file.Written:
        return gguf_file.write(checkpoint, tokens, hidden, type_, given.name, fallback)

    written = _placed(place, fill)
    if beside is not None:
        _placed(beside, lambda hidden: hidden.write_text(text, "utf-8"))
    return {
        "model": given.name,
        "file": str(place),
        "type": type_,
        "bytes": written.bytes,
        "other_types": list(written.other),
        "notes": list(tokens.notes),
        **more,
    }


def _placed(place: Path, fill: Callable[[Path], Result]) -> Result:
    """Return what `fill` returns; it writes a hidden file, which is then renamed to `place`."""
    hidden = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        result = fill(hidden)
        os.replace(hidden, place)
        sync(place.parent)
        return result
    except OSError as error:
        raise UnavailableError(
            f"{place} cannot be written: {error.strerror}. What was there stays."
        ) from error
    finally:
        hidden.unlink(missing_ok=True)


def _target(out: Path) -> Path:
    """Return the absolute file if it may be written; change nothing."""
    place = out.resolve()
    try:
        folder = place.is_dir()
        place.with_name(f".{place.name}.{os.getpid()}").exists()  # what `_placed` writes first
    except OSError as error:
        raise ConfigError(f"{str(out)[:60]} is no name for a file: {error.strerror}.") from error
    if folder:
        raise ConfigError(f"{out} is a folder: give the name of a file, such as {out}/model.gguf.")
    if not place.parent.is_dir():
        raise ConfigError(f"there is no folder {place.parent} to write {out} into.")
    if place.exists():
        with place.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ConflictError(f"{out} is there and no GGUF file: choose another name.")
    return place


def _modelfile(place: Path) -> Path:
    """Return the Modelfile beside a file if it may be written."""
    beside = place.with_name("Modelfile")
    if beside.exists() and not (
        beside.is_file() and beside.read_text("utf-8", "replace").startswith(modelfile.FIRST + "\n")
    ):
        raise ConflictError(f"{beside} is there and was not written here: move it away.")
    modelfile.file_argument(place.name)
    return beside


def main(model: str, out: str, type_: str) -> int:
    """Write a model as a GGUF file; return 0, or an exit code with the reason on stderr."""
    try:
        export(Home.default(), model, Path(out), type_, lambda text: None)
    except ForgeError as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
