"""Export of a model as a compressed-tensors folder: found by name, checked, written whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent_forge.runs.home import Home
from agent_forge.weights.folders.checkpoint import open_checkpoint, publish
from agent_forge.weights.folders.sources import resolve
from agent_forge.weights.formats import compressed_tensors_folder as format_
from agent_forge.weights.storage.model_origin import Finder
from agent_forge.weights.storage.output_folder import check_target


def export(
    home: Home, model: str, out: Path, type_: str, tell: Callable[[str], None]
) -> dict[str, object]:
    """Write a model as a compressed-tensors folder; return a JSON record of what was written.

    `model` is a name as all commands take it: a folder, a Hub id, RUN, RUN:ROLE, a registered name. An
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
