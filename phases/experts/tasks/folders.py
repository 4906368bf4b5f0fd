"""Folders of an experts run: the result as `studies/folders.py` writes it, and:

OUT/experts/experts.safetensors   "DOMAIN/MATRIX": the vectors z of each expert, float32 [rank]
OUT/experts/classifier.safetensors   domains' centroids and the deviation, float64
OUT/experts/experts.json          what they are of, and each domain's factors
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from phases.experts import findings, plan, report, stages
from phases.experts.events import ExpertsState, Fitted
from phases.experts.tasks.execute import Context
from runs.home import Home
from studies.folders import ResultFolders
from weights.folders.checkpoint import publish
from weights.storage.output_folder import mark_of
from weights.storage.weight_cache import Artifacts

#: Folder of the vectors in a result, and its files.
BUNDLE, VECTORS, CLASSIFIER = "experts", "experts.safetensors", "classifier.safetensors"

_runs = ResultFolders(
    Context, stages.recipes, findings.chosen, report.report, report.card, mark_of("experts")
)
settle, files = _runs.settle, _runs.files


def write(home: Home, state: ExpertsState, out: Path) -> dict[str, Any]:
    """Write the result, the items and the report, and then the bundle of experts; return the report.

    Raises the errors of `check_target`.
    """
    told = _runs.write(home, state, out)
    context = Context.opened(state, Artifacts.of(home))
    publish(Path(told["folder"]) / BUNDLE, lambda folder: _write_bundle(context, folder))
    return told


def _write_bundle(context: Context, folder: Path) -> None:
    """Write vectors, classifier and what they are of."""
    from safetensors.torch import save_file

    state = context.state
    own = stages.kept(state) or ()
    vectors = {
        f"{domain}/{name}": z.contiguous()
        for domain in own
        for name, z in context.weights(plan.expert(state.submitted, state.started, domain)).items()
    }
    save_file(vectors, folder / VECTORS)
    made = context.classifier
    found = {
        f"centroid/{d}": row.clone() for d, row in zip(made.domains, made.centroids, strict=True)
    }
    save_file({**found, "deviation": made.deviation}, folder / CLASSIFIER)
    svd = plan.decomposition(state.submitted, state.started)
    told = {
        "run": state.run,
        "model": state.started.model.digest,
        "decomposition": state.made[svd.id].digest,
        "parts": list(state.submitted.config.parts),
        "experts": list(own),
        "prompt": state.submitted.config.prompt,
        "factors": {
            task.domain: list(event.factors)
            for task in stages.fits(state)
            if isinstance(event := state.answers.get(task.key), Fitted)
        },
    }
    (folder / "experts.json").write_text(json.dumps(told, indent=2) + "\n", "utf-8")
