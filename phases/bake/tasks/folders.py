"""Folders of a bake; `studies/folders.py` writes them."""

from __future__ import annotations

from phases.bake import findings, report, stages
from phases.bake.tasks.execute import Context
from studies.folders import ResultFolders
from weights.storage.output_folder import mark_of

_runs = ResultFolders(
    Context, stages.recipes, findings.chosen, report.report, report.card, mark_of("bake")
)
write, settle, files = _runs.write, _runs.settle, _runs.files
