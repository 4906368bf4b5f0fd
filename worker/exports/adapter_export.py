"""Export of a model as a LoRA adapter of its base: found by name, extracted, written whole."""

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
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from agent_forge.weights.folders.sources import resolve
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage import model_origin
from agent_forge.weights.storage.model_origin import Finder


def extract(
    home: Home, base: str, model: str, out: Path, choice: Choice, tell: Callable[[str], None]
) -> dict[str, object]:
    """Write the adapter of `base` that is nearest to `model`; return a JSON record of what was written.

    Both are names of models as all commands take them. Raises the errors of `extraction.extract`.
    """
    named = Finder(home, tell)
    first = resolve(base, named=named)
    return _written(first, resolve(model, named=named), first, out, choice)


def export(home: Home, model: str, out: Path) -> dict[str, object]:
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
    first, second = (_opened(reference, known_as) for reference in (base, model))
    return extraction.extract(first, second, out, choice)


def _opened(model: ModelReference, known_as: str) -> FullModel:
    """Return an opened model with the digest of its weights, which is computed if unknown."""
    checkpoint = open_checkpoint(Path(model.path))
    weights_digest = model.digest or digest(checkpoint.tensors())
    return FullModel(model.name, known_as, weights_digest, checkpoint)
