"""Folders of a bitnet run's models: written, found again, and made again where they are missing.

OUT/model, OUT/master    ordinary Hugging Face folders, each with `training.json`: how it was made
OUT/packed               the model in the format `bitnet`, if its sizes and scales allow that
OUT/items                the items to measure on, one file a domain
OUT/bitnet.json          the report, written last
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluation.training_text.kept_text import write_items
from phases.bitnet import origins, plan, report
from phases.bitnet.events import BitnetState
from phases.bitnet.report import Report
from phases.bitnet.tasks.execute import Context
from runs.errors import ConfigError
from runs.home import Home
from studies import folders as shared
from studies.events import MODEL
from studies.folders import publish_model
from weights.folders.checkpoint import open_checkpoint, publish
from weights.formats import bitnet_folder
from weights.storage.output_folder import TERNARY, check_target
from weights.storage.weight_cache import Artifacts

#: Folders of the items and of the packed model.
ITEMS_FOLDER, PACKED = "items", "packed"


def write(home: Home, state: BitnetState, out: Path) -> dict[str, Any]:
    """Write every folder whole or not at all, the items, and last the report; return it.

    Raises the errors of `check_target`.
    """
    out = check_target(out)
    context = Context.opened(state, Artifacts.of(home))
    told = report.report(state)
    for role in origins.ROLES:
        publish_model(context, out / role, role, state.head, report.card(role, told))
    packed = _packed(out, state, told)
    publish(out / ITEMS_FOLDER, lambda folder: write_items(context.text, folder))
    digests = {role: one.digest for role, one in state.completed.models.items()}
    chain = {"run": state.run, "chain_head": state.head}
    whole = {**told.model_dump(), **chain, "models": digests}
    (out / TERNARY).write_text(json.dumps(whole, indent=2) + "\n", "utf-8")
    return {**told.model_dump(), "run": state.run, "folder": str(out), "packed_folder": packed}


def _packed(out: Path, state: BitnetState, told: Report) -> str | None:
    """Write the packed folder; return it, or None if the format does not take the model."""
    checkpoint = open_checkpoint(out / MODEL)
    shutil.rmtree(out / PACKED, ignore_errors=True)
    if state.submitted.config.group or not state.submitted.config.int8_activations:
        return None
    try:
        bitnet_folder.check(checkpoint)
    except ConfigError:
        return None

    def fill(folder: Path) -> None:
        bitnet_folder.write(checkpoint, folder)
        (folder / "README.md").write_text(report.card(PACKED, told), "utf-8")

    publish(out / PACKED, fill)
    return str(out / PACKED)


def settle(
    home: Home, state: BitnetState, head: str, recipe_id: str, folders: Sequence[Path]
) -> str:
    """Return a folder with a model of the run; write it into the last of `folders` if need be.

    `head` is the head of the run's chain. Raises ForgeError.
    """
    return shared.settle(Context, home, state, head, plan.recipes(state), recipe_id, folders)


def files(state: BitnetState, cache: Artifacts) -> list[tuple[str, Path]]:
    """Return (name in an archive, file) of model and master, made again if the cache lacks them."""
    return shared.files(Context.opened(state, cache), cache, origins.ROLES)
