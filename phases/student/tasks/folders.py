"""Folders of a student run; `evaluation/given_model_runs/folders.py` writes them."""

from __future__ import annotations

from evaluation.given_model_runs.folders import ResultFolders
from phases.student import findings, plan, report
from phases.student.tasks.execute import Context
from weights.storage.output_folder import STUDENT

_runs = ResultFolders(Context, plan.recipes, findings.chosen, report.report, report.card, STUDENT)
write, settle, files = _runs.write, _runs.settle, _runs.files
