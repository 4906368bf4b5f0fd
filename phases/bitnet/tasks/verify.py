"""The part of an audit that needs weights; `studies/verify.py` does it."""

from __future__ import annotations

from phases.bitnet import plan
from phases.bitnet.tasks.execute import Context
from studies.verify import Verification
from weights.storage.output_folder import TERNARY

_runs = Verification(Context, plan.recipes, plan.recipes, TERNARY)
rebuild, cached = _runs.rebuild, _runs.cached
document, folder = _runs.document, _runs.folder
