"""The folder of a study's result.

OUT/ROLE        an ordinary Hugging Face folder, with `training.json`: how it was made
OUT/items       the items to measure on, one file a domain
OUT/KIND.json   the report, written last
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evaluation.training_text.kept_text import write_items
from runs.home import Home
from studies.folders import ITEMS_FOLDER, publish_model
from weights.folders.checkpoint import publish
from weights.storage.output_folder import check_target
from weights.storage.weight_cache import Artifacts


def write(study: Any, work: type[Any], home: Home, state: Any, out: Path) -> dict[str, Any]:
    """Write every folder of a `Study`, whole or not at all, the items, last the report; return it.

    `work` is its class of contexts.

    Raises the errors of `check_target`.
    """
    out, run = check_target(out), study.run(state)
    context = work.to_read(state, Artifacts.of(home), run.result_digests)
    for role in study.roles(state.submitted.config):
        publish_model(context, out / role, run.name_of(role), state.head, study.card(run, role))
    folders = study.further_folders(run, out)
    publish(out / ITEMS_FOLDER, lambda folder: write_items(context.text, folder))
    report = study.whole_report(run)
    digests = {role: one.digest for role, one in state.completed.models.items()}
    whole = {**report, "run": state.run, "chain_head": state.head, "models": digests}
    (out / f"{study.name}.json").write_text(json.dumps(whole, indent=2) + "\n", "utf-8")
    return {**report, "run": state.run, "folder": str(out), **folders}
