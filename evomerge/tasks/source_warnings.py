"""Warnings about what a source's folder holds beside weights: code, chat templates, other tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runs.errors import SourceError
from runs.event_types import ModelReference
from weights.folders import chat_template, companions, vocabularies


def strange(models: Sequence[ModelReference], folders: Sequence[Path]) -> tuple[str, ...]:
    """Return a warning for each file of a model that names code or has an unusual chat template."""
    told = []
    for model, folder in zip(models, folders, strict=True):
        if files := companions.naming_code(folder):
            told.append(
                f"{', '.join(files)} of model {model.name} name Python code (auto_map): it is not run "
                f"here, and results are written without it{_copies(folder)}."
            )
        told += [
            f"the chat template in {file} of model {model.name} {why}. Results may carry it: read it "
            "before you serve them."
            for file, why in chat_template.unusual(folder)
        ]
    return tuple(told)


def _copies(folder: Path) -> str:
    """Return the files of a model's code, for those who load a result with it."""
    files = companions.code_files(folder)
    return f" (to load them with it, copy {', '.join(files)} and auto_map)" if files else ""


def other_tokens(
    models: Sequence[ModelReference], folders: Sequence[Path], strict: bool
) -> tuple[str, ...]:
    """Return a warning for each model some of whose numbers stand for other tokens than the first's.

    Raises SourceError if most do; with `strict`, also instead of a warning.
    """
    told = []
    for model, folder in zip(models[1:], folders[1:], strict=True):
        found = vocabularies.difference(folders[0], folder)
        if found is None:
            continue
        words = found.told(models[0].name, model.name)
        if found.foreign:
            raise SourceError(f"{words}. Only models that read text alike can be merged.")
        told.append(f"{words}. {models[0].name}'s are kept.")
    if strict and told:
        raise SourceError("--strict refuses what would be warnings:\n" + "\n".join(told))
    return tuple(dict.fromkeys(told))
