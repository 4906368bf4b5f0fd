"""Export of a ternary model as a `bitnet` folder: found by name, checked, written whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent_forge.runs.home import Home
from agent_forge.weights.folders.checkpoint import open_checkpoint, publish
from agent_forge.weights.folders.sources import resolve
from agent_forge.weights.formats import bitnet_folder
from agent_forge.weights.storage.model_origin import Finder
from agent_forge.weights.storage.output_folder import check_target


def export(home: Home, model: str, out: Path, tell: Callable[[str], None]) -> dict[str, object]:
    """Write a model as a bitnet folder; return a JSON record of what was written.

    `model` is a name as all commands take it: a folder, a Hub id, RUN, RUN:ROLE, a registered name. An
    earlier bitnet folder at `out` is replaced. Raises ConfigError, ConflictError, NotFiniteError,
    SourceError, UnavailableError.
    """
    place = check_target(out, bitnet_folder.is_one)
    reference = resolve(model, named=Finder(home, tell))
    checkpoint = open_checkpoint(Path(reference.path))
    checkpoint.check_plain("written as bitnet")
    matrices = bitnet_folder.check(checkpoint)
    publish(place, lambda folder: bitnet_folder.write(checkpoint, folder))
    return {
        "model": reference.name,
        "folder": str(place),
        "ternary": len(matrices),
        "bytes": sum(file.stat().st_size for file in place.glob("*.safetensors")),
    }
