"""Exports of a model as a folder for other programs: found by name, checked, written whole.

    compressed-tensors    a folder for vLLM
    bitnet                a packed folder of a ternary model

`model` is a name as all commands take it: a folder, a Hub id, RUN, RUN:ROLE, a registered name. An
earlier folder of the same format at `out` is replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent_forge.runs.home import Home
from agent_forge.weights.folders.checkpoint import Checkpoint, open_checkpoint, publish
from agent_forge.weights.folders.sources import resolve
from agent_forge.weights.formats import bitnet_folder, compressed_tensors_folder
from agent_forge.weights.storage.model_origin import Finder
from agent_forge.weights.storage.output_folder import check_target

Tell = Callable[[str], None]


def compressed_tensors(home: Home, model: str, out: Path, type_: str, tell: Tell) -> dict[str, object]:
    """Write a model as a compressed-tensors folder; return a JSON record of what was written.

    Raises ConfigError, ConflictError, NotFiniteError, SourceError, UnavailableError.
    """
    place = check_target(out, compressed_tensors_folder.is_one)
    name, checkpoint = _opened(home, model, tell)
    names, group = compressed_tensors_folder.check(checkpoint, type_)
    checkpoint.check_plain("compressed")
    publish(place, lambda folder: compressed_tensors_folder.write(checkpoint, folder, type_))
    return {
        "model": name,
        "folder": str(place),
        "type": type_,
        "group": group,
        "matrices": len(names),
        "bytes": _weight_bytes(place),
    }


def bitnet(home: Home, model: str, out: Path, tell: Tell) -> dict[str, object]:
    """Write a ternary model as a bitnet folder; return a JSON record of what was written.

    Raises ConfigError, ConflictError, NotFiniteError, SourceError, UnavailableError.
    """
    place = check_target(out, bitnet_folder.is_one)
    name, checkpoint = _opened(home, model, tell)
    checkpoint.check_plain("written as bitnet")
    matrices = bitnet_folder.check(checkpoint)
    publish(place, lambda folder: bitnet_folder.write(checkpoint, folder))
    return {
        "model": name,
        "folder": str(place),
        "ternary": len(matrices),
        "bytes": _weight_bytes(place),
    }


def _opened(home: Home, model: str, tell: Tell) -> tuple[str, Checkpoint]:
    """Return (the name of a model, its opened folder)."""
    reference = resolve(model, named=Finder(home, tell))
    return reference.name, open_checkpoint(Path(reference.path))


def _weight_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))
