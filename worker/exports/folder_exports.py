"""Exports of a model as a folder for other programs: found by name, checked, written whole.

    compressed-tensors    a folder for vLLM
    bitnet                a packed folder of a ternary model
    adapter               a LoRA adapter of the model's base

`model` is a name as all commands take it: a folder, a Hub id, RUN, RUN:ROLE, a registered name. An
earlier folder of the same format at `out` is replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.event_types import ModelReference
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.state import State
from agent_forge.studies.given_dtype import ROUNDED
from agent_forge.weights.adapters import extraction
from agent_forge.weights.adapters.extraction import Choice, FullModel
from agent_forge.weights.folders.checkpoint import Checkpoint, digest, open_checkpoint, publish
from agent_forge.weights.folders.sources import resolve
from agent_forge.weights.formats import bitnet_folder, compressed_tensors_folder
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage import model_origin
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


def extract(
    home: Home, base: str, model: str, out: Path, choice: Choice, tell: Callable[[str], None]
) -> dict[str, object]:
    """Write the adapter of `base` that is nearest to `model`; return a JSON record of what was written.

    Both are names of models as all commands take them. Raises the errors of `extraction.extract`.
    """
    named = Finder(home, tell)
    first = resolve(base, named=named)
    return _written(first, resolve(model, named=named), first, out, choice)


def adapter(home: Home, model: str, out: Path) -> dict[str, object]:
    """Write a model trained by adapters as an adapter of its run's given model; return a JSON record.

    The rank is that of the training, or the sum over successive trainings. Raises ConfigError for any
    other model, and the errors of `extraction.extract`.
    """
    with closing(home.open_store()) as store:
        origin = model_origin.find(store, model)
        if origin is None or origin.run is None or origin.recipe_id is None:
            raise ConfigError(_no_adapter(f"{model} is no model of a run"))
        state: State = repository.load(store, origin.run)
        line = kinds.of(state.kind).models.ancestry(state, origin.recipe_id)
    ranks, start = [], ""
    for recipe in (ancestor.recipe for ancestor in line):
        if recipe["kind"] == "train":
            rank = Train.model_validate(recipe).params.get("rank")
            if rank is None:
                raise ConfigError(_no_adapter(f"all weights of {model} were trained"))
            ranks.append(rank)
            start = recipe["start"]
    if not ranks:
        raise ConfigError(_no_adapter(f"{model} was not trained in run {origin.run}"))
    submitted = state.submitted
    start_model: ModelReference | None = getattr(submitted, "base", None) or getattr(
        submitted, "model", None
    )
    if start_model is None:
        raise ConfigError(
            f"{model} was trained from a base that the run made. Name it: forge extract "
            f"{origin.run}:base {model} OUT --rank {sum(ranks)}."
        )
    named = Finder(home, lambda words: None)  # the user has named the model
    recipe = line[0].recipe
    exact = recipe["inputs"]["of"] if recipe.get("operation") == ROUNDED else origin.recipe_id
    base, trained = (resolve(f"{origin.run}:{id_}", named=named) for id_ in (start, exact))
    return _written(base, trained, start_model, out, Choice(sum(ranks)))


def _no_adapter(why: str) -> str:
    """Return the text of an error: this model is not the sum of a base and an adapter."""
    return (
        f"{why}: it is no adapter of a base. To write the nearest one: forge extract BASE MODEL OUT "
        "--rank 16."
    )


def _written(
    base: ModelReference, model: ModelReference, named_base: ModelReference, out: Path, choice: Choice
) -> dict[str, object]:
    """Write the adapter of two models; return a JSON record. peft finds the base as `named_base`."""
    known_as = named_base.hub_id or named_base.path
    first, second = (_full_model(reference, known_as) for reference in (base, model))
    return extraction.extract(first, second, out, choice)


def _full_model(model: ModelReference, known_as: str) -> FullModel:
    """Return an opened model with the digest of its weights, which is computed if unknown."""
    checkpoint = open_checkpoint(Path(model.path))
    weights_digest = model.digest or digest(checkpoint.tensors())
    return FullModel(model.name, known_as, weights_digest, checkpoint)
