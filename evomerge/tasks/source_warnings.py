"""Warnings about what a source's folder holds beside weights: named code, unusual chat templates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runs.event_types import ModelReference
from weights.folders import chat_template, companions


def strange(models: Sequence[ModelReference], folders: Sequence[Path]) -> tuple[str, ...]:
    """Return a warning for each file of a model that names code or has an unusual chat template."""
    told = []
    for model, folder in zip(models, folders, strict=True):
        if files := companions.naming_code(folder):
            told.append(
                f"{', '.join(files)} of model {model.name} name Python code (auto_map): it is not run "
                "here, and results are written without it."
            )
        told += [
            f"the chat template in {file} of model {model.name} {why}. Results may carry it: read it "
            "before you serve them."
            for file, why in chat_template.unusual(folder)
        ]
    return tuple(told)
