"""Whole models of BASE+ADAPTER, in a cache of the home (`weights.folders.made_folders`).

For commands that take a model, BASE+ADAPTER becomes such a folder. Merging runs need no folder: they
add an adapter while they read tensors (`weights.folders.checkpoint`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agent_forge.runs.errors import SourceError
from agent_forge.weights.folders import adapter_folders, companions, gguf_note, made_folders
from agent_forge.weights.folders.adapter import AdaptedTensors, Adapter
from agent_forge.weights.folders.checkpoint import (
    SHARD_BYTES,
    Checkpoint,
    open_checkpoint,
    publish,
    untied,
    weight_files,
    write_weights,
)
from agent_forge.weights.tensors import HEADS, Weights

#: Increased if the same files give another folder.
VERSION = 1


def folder(base: Path, adapter: Path, name: str) -> Path:
    """Return the path of the model folder of base and adapter; make it if it is missing or damaged.

    Raises SourceError for files that do not fit together, UnavailableError if the disk lacks space.
    """
    opened = open_checkpoint(base)
    files = [*weight_files(base), *companions.found(base).values()]
    files += [adapter / adapter_folders.CONFIG, adapter_folders.weights_file(adapter)]
    cache = made_folders.cache(made_folders.ADAPTED)
    place = made_folders.place(cache, name, files, VERSION)

    def make(hidden: Path) -> Mapping[str, object]:
        tensors, tied = _summed(opened, adapter)
        made_folders.check_space(name, cache, opened.bytes)
        write_weights(hidden, tensors, SHARD_BYTES)
        companions.write(base, hidden)
        config = {**companions.cleaned(opened.config), "tie_word_embeddings": tied}
        (hidden / companions.CONFIG).write_text(companions.as_text(config), "utf-8")
        return gguf_note.facts(base)

    return made_folders.settled(place, gguf_note.ADAPTED, f"{base}+{adapter}", make, publish)


def _summed(opened: Checkpoint, adapter: Path) -> tuple[Weights, bool]:
    """Return (tensors of the sum by name, True if the sum's head is its embedding).

    Head and embedding become two tensors if the adapter changes one of them alone. Raises SourceError
    for an adapter of another model.
    """
    opened.check_plain("given with an adapter")
    change, stored, tied = Adapter(adapter), opened.tensors(), opened.tied
    embedding = next((name for name in HEADS if name in stored), None)
    if tied and embedding and change.unties(embedding, HEADS[embedding]):
        stored, tied = untied(stored), False
    try:
        return AdaptedTensors(stored, change, opened.config.get("model_type")), tied
    except SourceError as error:
        base = adapter_folders.base_of(adapter)
        named = f" Its {adapter_folders.CONFIG} names the base {base}." if base else ""
        raise SourceError(f"{error}{named}") from error
