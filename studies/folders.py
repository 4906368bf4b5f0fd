"""Folders of the models of a run that trains: written, found again, made again.

OUT/ROLE        an ordinary Hugging Face folder, with `training.json`: how it was made
OUT/items       the items to measure on, one file a domain
OUT/KIND.json   the report, written last
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agent_forge.evaluation.training_text.kept_text import ITEMS, STREAMS, write_items
from agent_forge.events.envelope import Plain
from agent_forge.runs.home import Home
from agent_forge.studies import origins
from agent_forge.studies.making import model_files
from agent_forge.studies.making.making import Making, MakingState
from agent_forge.studies.training_context import TrainingContext
from agent_forge.weights import architectures
from agent_forge.weights.folders import model_card, model_config
from agent_forge.weights.folders.checkpoint import SHARD_BYTES, publish, write_weights
from agent_forge.weights.storage.output_folder import TRAINED, check_target, mark_of
from agent_forge.weights.storage.weight_cache import Artifacts

#: Folder of the items in a result.
ITEMS_FOLDER = "items"


def publish_model(
    context: TrainingContext[Any],
    place: Path,
    role: str,
    head: str,
    card: str | None = None,
    more: Callable[[Path], None] = lambda folder: None,
) -> None:
    """Write one model's folder, whole or not at all; with a card, its README too.

    `more` writes further files into it.
    """
    state, recipe = context.state, context.recipes[role]
    weights = context.weights(recipe)
    ancestors = origins.ancestry(state, context.recipes, recipe.id)
    document = {
        "run": state.run,
        "chain_head": head,
        "role": role,
        "recipe_id": recipe.id,
        "digest": state.made[recipe.id].digest,
        "recipes": {ancestor.recipe_id: dict(ancestor.recipe) for ancestor in ancestors},
    }

    def fill(folder: Path) -> None:
        write_weights(folder, weights, SHARD_BYTES)
        write_companions(context, folder)
        (folder / TRAINED).write_text(json.dumps(document, indent=2) + "\n", "utf-8")
        if card is not None:
            settings = model_config.read(folder)
            readme = card + model_card.section(settings) + architectures.note(settings)
            (folder / "README.md").write_text(readme, "utf-8")
        more(folder)

    publish(place, fill)


def write(
    study: Any, work: type[TrainingContext[Any]], home: Home, state: MakingState, out: Path
) -> Plain:
    """Write every folder of a `Study`, whole or not at all, the items, last the report; return it.

    `work` is its class of contexts. Raises the errors of `check_target`.
    """
    out, run = check_target(out), study.run(state)
    context = work.to_read(state, Artifacts.of(home), run.result_digests)
    for role in study.roles(state.submitted.config):
        publish_model(
            context, out / role, run.name_of(role), state.head, study.prose.card(run, role)
        )
    folders = study.further_folders(run, out)
    publish(out / ITEMS_FOLDER, lambda folder: write_items(context.text, folder))
    report = study.prose.report(run)
    digests = {role: model.digest for role, model in state.completed.models.items()}
    whole = {**report, "run": state.run, "chain_head": state.head, "models": digests}
    (out / mark_of(study.name)).write_text(json.dumps(whole, indent=2) + "\n", "utf-8")
    return {**report, "run": state.run, "folder": str(out), **folders}


def write_companions(context: TrainingContext[Any], folder: Path) -> None:
    """Write config.json and tokenizer of the run's models into a folder."""
    for file in context.text.folder.iterdir():
        if file.name not in (STREAMS, ITEMS):
            (folder / file.name).write_bytes(file.read_bytes())


def materialise(
    context_of: type[TrainingContext[Any]],
    home: Home,
    state: MakingState,
    head: str,
    recipes: Mapping[str, Making],
    recipe_id: str,
    folders: Sequence[Path],
) -> str:
    """Return a folder with a model of the run; write it into the last of `folders` if need be.

    `head` is the head of the run's chain. Raises ForgeError.
    """
    digest, files_ = state.made[recipe_id].digest, state.started.files
    role = next(name for name, recipe in recipes.items() if recipe.id == recipe_id)

    def written(place: Path) -> None:
        context = context_of.to_read(state, Artifacts.of(home), [digest])
        publish_model(context, place, role, head)

    return model_files.settled(
        folders, lambda place: model_files.fits(place, digest, files_), written
    )


def files(
    context: TrainingContext[Any], cache: Artifacts, roles: Sequence[str]
) -> list[tuple[str, Path]]:
    """Return (name in an archive, file) of the models, made again if the cache lacks them."""
    recipes = [context.recipes[role] for role in roles]
    models = {
        context.state.made[recipe.id].digest: partial(context.weights, recipe) for recipe in recipes
    }
    return model_files.files(cache, models, context.state.making_seconds)
