"""Rebuild a candidate's folder from its recipe file and the sources, without the log."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_forge.events.envelope import Data
from agent_forge.evomerge.merging.builder import Builder, Weights
from agent_forge.evomerge.merging.dataflow import settings_for
from agent_forge.evomerge.merging.safetensors_sink import mapped
from agent_forge.evomerge.recipes.recipe import Source
from agent_forge.evomerge.tasks.results.verify import read_document
from agent_forge.runs.errors import ConfigError, ForgeError, SourceChangedError
from agent_forge.runs.kinds.asked import Names
from agent_forge.weights.folders import companions
from agent_forge.weights.folders.checkpoint import Checkpoint, digest, open_checkpoint, publish, untied
from agent_forge.weights.folders.sources import resolve_source
from agent_forge.weights.storage.output_folder import MARK, check_target


def rebuild(
    file: Path, out: Path, folders: Mapping[str, str], shard_bytes: int, named: Names | None = None
) -> str:
    """Write a recipe file's candidate to `out`, check its digest, and return the digest.

    `folders`: source name → path, Hub id, or a name that `named` finds in a log. Raises ConfigError,
    SourceChangedError, DataError, and the errors of `check_target`.
    """
    out = check_target(out)
    document = read_document(file)
    recipes = document["recipes"]
    if changed := [id_ for id_, recipe in recipes.items() if recipe.id != id_]:
        raise ConfigError(f"{file}: recipe {changed[0][:12]} was changed: it has another id.")
    names = document["sources"]
    if unknown := sorted(set(folders) - set(names.values())):
        listing = ", ".join(sorted(set(names.values())))
        raise ConfigError(f"--model {unknown[0]}: the recipe's models are {listing}.")
    sources: dict[str, tuple[Checkpoint, Weights]] = {}
    for id_, recipe in recipes.items():
        if isinstance(recipe, Source):
            name = names.get(id_, id_[:12])
            where = folders.get(name) or document["places"].get(id_) or name
            sources[id_] = _open(name, where, recipe.digest, named)
    stored = {id_: weights for id_, (_, weights) in sources.items()}
    if document["candidate"] not in recipes:
        raise ConfigError(f"{file}: the recipe of {document['candidate'][:12]} is missing.")
    base = sources[_origin(recipes, document["candidate"])][0]
    publish(out, lambda folder: _fill(folder, document, stored, base, file, shard_bytes))
    return document["digest"]


def _open(name: str, where: str, expected: str, named: Names | None) -> tuple[Checkpoint, Weights]:
    """Return (a source, its weights as stored or untied, whichever has the expected digest).

    Raises ConfigError if no model is there, SourceChangedError if neither has the digest.
    """
    try:
        checkpoint = open_checkpoint(Path(resolve_source(where, named=named).path))
    except ForgeError as error:
        raise ConfigError(f"{error} Say where {name} is: --model {name}=PATH.") from error
    tensors = checkpoint.tensors()
    for weights in (tensors, untied(tensors) if checkpoint.tied else None):
        if weights is not None and digest(weights) == expected:
            return checkpoint, weights
    raise SourceChangedError(
        f"model {name} at {where} is not the one of the recipe, whose digest is {expected[:12]}. "
        f"Say where that is: --model {name}=PATH."
    )


def _origin(recipes: Mapping[str, Any], id_: str) -> str:
    """Return the id of the source whose config a candidate gets.

    It is found by following the recipe's base, or else its first input, down to a source.
    """
    recipe = recipes[id_]
    while not isinstance(recipe, Source):
        id_ = recipe.base or recipe.inputs[0]
        recipe = recipes[id_]
    return id_


def _fill(
    folder: Path,
    document: Data,
    stored: Mapping[str, Weights],
    base: Checkpoint,
    file: Path,
    shard_bytes: int,
) -> None:
    """Write the candidate, built out of core, and the files beside it into an existing folder.

    Raises SourceChangedError if the weights do not have the digest that the file says.
    """
    recipes, scratch = document["recipes"], folder / ".ancestors"
    scratch.mkdir()
    candidate = recipes[document["candidate"]]
    rebuilt_digest = Builder(recipes, stored.get, scratch).write(candidate, folder, shard_bytes)
    shutil.rmtree(scratch)
    if rebuilt_digest != document["digest"]:
        raise SourceChangedError(
            f"{file}: what its recipe gives has digest {rebuilt_digest[:12]}, it says "
            f"{document['digest'][:12]}. The file does not say which machine and "
            "libraries built the model: others may give other weights, and so does a changed file."
        )
    weights = mapped(folder)
    companions.write(base.folder, folder)
    tied = not any("lm_head" in n or "embed_out" in n for n in weights)
    config = settings_for(weights, base, tied)
    (folder / companions.CONFIG).write_text(companions.as_text(config), "utf-8")
    shutil.copyfile(file, folder / MARK)
