"""Folders of a baking run: written, found again, and made again where they are missing.

OUT/model          an ordinary Hugging Face folder, with `training.json`: how it was made
OUT/items          the texts to measure on, one file a domain
OUT/baking.json    the report
OUT/personas       a file for each persona, as `forge bake --prompt` reads it
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from phases.baking import plan, report
from phases.baking.events import BakingState
from phases.baking.report import Persona
from phases.baking.tasks.execute import Context
from runs.home import Home
from studies import folders as shared
from weights.folders.checkpoint import publish
from weights.storage.output_folder import mark_of
from weights.storage.weight_cache import Artifacts


def write(home: Home, state: BakingState, out: Path) -> dict[str, Any]:
    """Write the model's folder whole or not at all, items, report and personas; return the report.

    Raises the errors of `check_target`.
    """
    context, told = Context.opened(state, Artifacts.of(home)), report.report(state)
    card, name = report.card(told), state.completed.chosen
    written = shared.write_result(context, out, name, told, card, mark_of("baking"))
    if told.personas:
        publish(out.resolve() / "personas", lambda folder: _personas(folder, told.personas))
    return written


def _personas(folder: Path, personas: Sequence[Persona]) -> None:
    """Write each persona's text to a file."""
    for number, one in enumerate(personas, 1):
        (folder / f"{one.iteration:02d}-{number:02d}.txt").write_text(one.text, "utf-8")


def settle(
    home: Home, state: BakingState, head: str, recipe_id: str, folders: Sequence[Path]
) -> str:
    """Return a folder with a model of the run; write it into the last of `folders` if need be.

    `head` is the head of the run's chain. Raises ForgeError.
    """
    return shared.settle(Context, home, state, head, plan.recipes(state), recipe_id, folders)


def files(state: BakingState, cache: Artifacts) -> list[tuple[str, Path]]:
    """Return (name in an archive, file) of the baked model, made again if the cache lacks it."""
    return shared.files(Context.opened(state, cache), cache, [plan.newest(state)])
