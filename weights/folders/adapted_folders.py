"""Whole models of BASE+ADAPTER, in a cache of the home (`weights.folders.made_folders`).

Commands that take a model take BASE+ADAPTER by such a folder. Merging runs need none: they add an
adapter while tensors are read (`weights.folders.checkpoint`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    """Return the model folder of a base with an adapter, making it if it is missing or damaged.

    Raise SourceError for files that do not fit together, UnavailableError if the disk lacks space.
    """
    opened = open_checkpoint(base)
    files = [*weight_files(base), *companions.found(base).values()]
    files += [adapter / adapter_folders.CONFIG, adapter_folders.weights_file(adapter)]
    cache = made_folders.cache(made_folders.ADAPTED)
    place = made_folders.place(cache, name, files, VERSION)

    def make(hidden: Path) -> Mapping[str, Any]:
        tensors, tied = _summed(opened, adapter)
        made_folders.check_space(name, cache, opened.bytes)
        write_weights(hidden, tensors, SHARD_BYTES)
        companions.write(base, hidden)
        config = {**companions.cleaned(opened.config), "tie_word_embeddings": tied}
        (hidden / companions.CONFIG).write_text(companions.as_text(config), "utf-8")
        return gguf_note.facts(base)

    return made_folders.settled(place, gguf_note.ADAPTED, f"{base}+{adapter}", make, publish)


def _summed(opened: Checkpoint, adapter: Path) -> tuple[Weights, bool]:
    """Return the tensors of the sum, and True if its head is its embedding.

    Both become two tensors if the adapter changes one of them alone. Raise SourceError for an adapter
    of another model.
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
