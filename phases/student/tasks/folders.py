"""Folders of a student run; `studies/folders.py` writes them."""

from __future__ import annotations

from phases.student import findings, plan, report
from phases.student.tasks.execute import Context
from studies.folders import ResultFolders
from weights.storage.output_folder import STUDENT

_runs = ResultFolders(Context, plan.recipes, findings.chosen, report.report, report.card, STUDENT)
write, settle, files = _runs.write, _runs.settle, _runs.files
