"""Folders of a quietstar run: the result as `studies/folders.py` writes it, and:

OUT/thoughts/model.safetensors     the model that learned to think, as an ordinary folder, in any case
OUT/thoughts/thoughts.safetensors  the vectors around a thought and the mixing head, float32
OUT/thoughts/thoughts.json         the tokens of a thought, and the temperature
OUT/thoughts/modeling_thoughts.py  what loads both together, with torch and transformers alone
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from phases.quietstar import findings, plan, report
from phases.quietstar.events import QuietstarState
from phases.quietstar.tasks.execute import Context
from runs.home import Home
from studies.folders import ResultFolders, publish_model
from weights.storage.output_folder import mark_of
from weights.storage.weight_cache import Artifacts
from weights.thoughts import modeling_thoughts, parts

#: Folder of the model that thinks.
THINKER = "thoughts"


def _result(state: QuietstarState) -> str | None:
    """Return the name of the result among the recipes; None before it is known."""
    best = findings.chosen(state)
    return plan.SILENT if best == plan.THOUGHTS else best


_runs = ResultFolders(
    Context, plan.recipes, _result, report.report, report.card, mark_of("quietstar")
)
settle, files = _runs.settle, _runs.files


def write(home: Home, state: QuietstarState, out: Path) -> dict[str, Any]:
    """Write the result, the items and the report, and then the model that thinks; return the report.

    Raises the errors of `check_target`.
    """
    told = _runs.write(home, state, out)
    context = Context.opened(state, Artifacts.of(home))
    place = Path(told["folder"]) / THINKER
    card = report.card(report.report(state))
    publish_model(
        *(context, place, plan.SILENT, state.head, card),
        more=lambda folder: _write_part(context, folder),
    )
    return {**told, "thinker": str(place)}


def _write_part(context: Context, folder: Path) -> None:
    """Write what thinking needs beside an ordinary model."""
    from safetensors.torch import save_file

    own = parts.split(context.weights(context.recipes[plan.THOUGHTS]))[1]
    save_file({n: t.contiguous() for n, t in own.items()}, folder / modeling_thoughts.TENSORS)
    config = context.state.submitted.config
    told = {"length": config.thought_lengths[-1], "temperature": config.temperature}
    (folder / modeling_thoughts.SETTINGS).write_text(json.dumps(told) + "\n", "utf-8")
    (folder / parts.MODELING.name).write_bytes(parts.MODELING.read_bytes())
