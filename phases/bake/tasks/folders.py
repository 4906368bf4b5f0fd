"""Folders of a bake; `evaluation/given_model_runs/folders.py` writes them."""

from __future__ import annotations

from evaluation.given_model_runs.folders import ResultFolders
from phases.bake import findings, report, stages
from phases.bake.tasks.execute import Context
from weights.storage.output_folder import BAKED

_runs = ResultFolders(Context, stages.recipes, findings.chosen, report.report, report.card, BAKED)
write, settle, files = _runs.write, _runs.settle, _runs.files
