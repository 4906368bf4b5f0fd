"""Export of a model as a compressed-tensors folder: looked up, checked, written whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from runs.home import Home
from weights.folders.checkpoint import open_checkpoint, publish
from weights.folders.sources import resolve
from weights.formats import compressed_tensors_folder as format_
from weights.storage.model_origin import Finder
from weights.storage.output_folder import check_target


def export(
    home: Home, model: str, out: Path, type_: str, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Write a model as a compressed-tensors folder; return what was written, as JSON has it.

    `model` is what other commands take: a folder, a Hub id, RUN, RUN:ROLE, a registered name. An
    earlier folder of this format at `out` is replaced. Raises ConfigError, ConflictError,
    NotFiniteError, SourceError, UnavailableError.
    """
    place = check_target(out, format_.is_one)
    reference = resolve(model, named=Finder(home, tell))
    checkpoint = open_checkpoint(Path(reference.path))
    names, group = format_.check(checkpoint, type_)
    checkpoint.check_plain("compressed")
    publish(place, lambda folder: format_.write(checkpoint, folder, type_))
    return {
        "model": reference.name,
        "folder": str(place),
        "type": type_,
        "group": group,
        "matrices": len(names),
        "bytes": sum(file.stat().st_size for file in place.glob("*.safetensors")),
    }
