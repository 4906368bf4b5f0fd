"""Folders of a curriculum run; `studies/folders.py` writes them."""

from __future__ import annotations

from phases.curriculum import findings, plan, report
from phases.curriculum.tasks.execute import Context
from studies.folders import ResultFolders
from weights.storage.output_folder import mark_of

_runs = ResultFolders(
    Context, plan.recipes, findings.known, report.report, report.card, mark_of("curriculum")
)
write, settle, files = _runs.write, _runs.settle, _runs.files
