"""Folders of a cognate run's models: written, found again, and made again where they are missing.

OUT/base, OUT/code, …    ordinary Hugging Face folders, each with `training.json`: how it was made
OUT/items                the items to measure on, one file a domain
OUT/cognate.json         the report, written last
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from evaluation.training_text.kept_text import ITEMS, STREAMS, Text, write_items
from phases.cognate import origins, plan, report
from phases.cognate.events import CognateState
from phases.cognate.report import Report
from phases.cognate.tasks.execute import Context
from runs.home import Home
from studies.making import model_files
from weights import architectures
from weights.folders import model_card, model_config
from weights.folders.checkpoint import SHARD_BYTES, publish, write_weights
from weights.recipes import Train, Transform
from weights.storage.output_folder import TRAINED, check_target, mark_of
from weights.storage.weight_cache import Artifacts

#: Folder of the items.
ITEMS_FOLDER = "items"


def write(home: Home, state: CognateState, out: Path) -> dict[str, Any]:
    """Write every model's folder whole or not at all, the items, and last the report; return it.

    Raises the errors of `check_target`.
    """
    out = check_target(out)
    context = Context.to_read(state, Artifacts.of(home), _digests(state).values())
    told = report.report(state)
    for role, recipe in plan.models(state).items():
        _publish(context, out / role, role, recipe, told, state.head)
    publish(out / ITEMS_FOLDER, lambda folder: write_items(context.text, folder))
    whole = {**told.model_dump(), **_chain(state, state.head), "models": _digests(state)}
    (out / mark_of("cognate")).write_text(json.dumps(whole, indent=2) + "\n", "utf-8")
    return {**told.model_dump(), "run": state.run, "folder": str(out)}


def _digests(state: CognateState) -> dict[str, str]:
    """Return role → BLAKE3 of the weights."""
    return {role: state.made[r.id].digest for role, r in plan.models(state).items()}


def _chain(state: CognateState, head: str) -> dict[str, str]:
    return {"run": state.run, "chain_head": head}


def _publish(
    context: Context,
    place: Path,
    role: str,
    recipe: Train | Transform,
    told: Report | None,
    head: str,
) -> None:
    """Write one model's folder; with a report, a card too."""
    weights = context.weights(recipe)

    def fill(folder: Path) -> None:
        write_weights(folder, weights, SHARD_BYTES)
        for name, content in documents(context.text, context.state, role, head).items():
            (folder / name).write_bytes(content)
        if told is not None:
            card = report.card(role, context.trainings.get(role), told, context.state.submitted)
            settings = model_config.read(folder)
            card += model_card.section(settings) + architectures.note(settings)
            (folder / "README.md").write_text(card, "utf-8")

    publish(place, fill)


def documents(text: Text, state: CognateState, role: str, head: str) -> dict[str, bytes]:
    """Return a model's files beside its weights: name → content."""
    recipe = plan.models(state)[role]
    history = {one.recipe_id: dict(one.recipe) for one in origins.ancestry(state, recipe.id)}
    made = {
        **_chain(state, head),
        "role": role,
        "recipe_id": recipe.id,
        "digest": state.made[recipe.id].digest,
        "recipes": history,
    }
    files = {
        p.name: p.read_bytes() for p in text.folder.iterdir() if p.name not in (STREAMS, ITEMS)
    }
    return {**files, TRAINED: (json.dumps(made, indent=2) + "\n").encode()}


def settle(
    home: Home, state: CognateState, head: str, recipe_id: str, folders: Sequence[Path]
) -> str:
    """Return a folder with a model of the run; write it into the last of `folders` if need be.

    `head` is the head of the run's chain. Raises ForgeError.
    """
    digest, files_ = state.made[recipe_id].digest, state.started.files
    role, recipe = next((r, m) for r, m in plan.models(state).items() if m.id == recipe_id)

    def written(place: Path) -> None:
        context = Context.to_read(state, Artifacts.of(home), [digest])
        _publish(context, place, role, recipe, None, head)

    return model_files.settled(
        folders, lambda place: model_files.fits(place, digest, files_), written
    )


def files(state: CognateState, cache: Artifacts) -> list[tuple[str, Path]]:
    """Return (name in an archive, file) of all models' weights, made again if the cache lacks them."""
    context = Context.to_read(state, cache, _digests(state).values())
    recipes = plan.models(state).values()
    models = {state.made[one.id].digest: partial(context.weights, one) for one in recipes}
    return model_files.files(cache, models, state.making_seconds)
