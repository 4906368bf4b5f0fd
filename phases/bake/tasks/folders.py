"""Folders of a bake: written, found again, and made again where they are missing.

OUT/model          an ordinary Hugging Face folder, with `training.json`: how it was made
OUT/items          the items to measure on, one file a domain
OUT/bake.json      the report, written last
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluation.given_model_runs import folders as shared
from phases.bake import findings, plan, report
from phases.bake.events import BakeState
from phases.bake.tasks.execute import Context
from runs.home import Home
from weights.storage.output_folder import BAKED
from weights.storage.weight_cache import Artifacts


def write(home: Home, state: BakeState, out: Path) -> dict[str, Any]:
    """Write the model's folder whole or not at all, the items, and last the report; return it.

    Raises the errors of `check_target`.
    """
    context, told = Context.opened(state, Artifacts.of(home)), report.report(state)
    card, name = report.card(told), state.completed.chosen
    return shared.write_result(context, out, name, told, card, BAKED)


def settle(home: Home, state: BakeState, head: str, recipe_id: str, folders: Sequence[Path]) -> str:
    """Return a folder with a model of the run; write it into the last of `folders` if need be.

    `head` is the head of the run's chain. Raises ForgeError.
    """
    return shared.settle(Context, home, state, head, plan.recipes(state), recipe_id, folders)


def files(state: BakeState, cache: Artifacts) -> list[tuple[str, Path]]:
    """Return (name in an archive, file) of the baked model, made again if the cache lacks it."""
    best = findings.chosen(state)
    assert best is not None
    return shared.files(Context.opened(state, cache), cache, [best])
