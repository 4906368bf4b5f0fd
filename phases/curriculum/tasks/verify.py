"""The part of an audit that needs weights; `studies/verify.py` does it."""

from __future__ import annotations

from phases.curriculum import findings, plan
from phases.curriculum.tasks.execute import Context
from studies.verify import Verification
from weights.storage.output_folder import mark_of

_runs = Verification(Context, plan.recipes, findings.named, mark_of("curriculum"))
rebuild, cached = _runs.rebuild, _runs.cached
document, folder = _runs.document, _runs.folder
