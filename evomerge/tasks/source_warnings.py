"""Warnings about what a source's folder holds beside weights: code, chat templates, other tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runs.errors import SourceError
from runs.event_types import ModelReference
from weights.folders import chat_template, companions, vocabularies

_REMEDY = (
    "A config of `forge merge` with `tokenizer_source: union` gives each token its own row: merge by "
    "one, or bring the models to one vocabulary by it first."
)


def strange(models: Sequence[ModelReference], folders: Sequence[Path]) -> tuple[str, ...]:
    """Return a warning for each file of a model that names code or has an unusual chat template."""
    warnings = []
    for model, folder in zip(models, folders, strict=True):
        if files := companions.naming_code(folder):
            warnings.append(
                f"{', '.join(files)} of model {model.name} name Python code (auto_map): it is not run "
                f"here, and results are written without it{_copies(folder)}."
            )
        warnings += [
            f"the chat template in {file} of model {model.name} {why}. Results may carry it: read it "
            "before you serve them."
            for file, why in chat_template.unusual(folder)
        ]
    return tuple(warnings)


def left_behind(models: Sequence[ModelReference], folders: Sequence[Path]) -> tuple[str, ...]:
    """Return a warning for each model with files that belong to it and that a run does not take."""
    return tuple(
        f"{', '.join(names)} of model {model.name}: a run's results are written without it. Copy it "
        "to a result that needs it."
        for model, folder in zip(models, folders, strict=True)
        if (names := sorted(companions.in_folders(folder)))
    )


def _copies(folder: Path) -> str:
    """Return the files of a model's code, for those who load a result with it."""
    files = companions.code_files(folder)
    return f" (to load them with it, copy {', '.join(files)} and auto_map)" if files else ""


def other_tokens(
    names: Sequence[str], folders: Sequence[Path], strict: bool = False
) -> tuple[str, ...]:
    """Return warnings about numbers that stand for other tokens in two of the models.

    Vocabularies are compared with the first model's, added tokens among all. Raises SourceError if
    most numbers of two vocabularies do; with `strict`, also instead of a warning.
    """
    warnings = []
    for name, folder in zip(names[1:], folders[1:], strict=True):
        difference = vocabularies.difference(folders[0], folder)
        if difference is None:
            continue
        words = difference.told(names[0], name)
        if difference.foreign:
            raise SourceError(
                f"{words}. Only models that read text alike can be merged row by row. {_REMEDY}"
            )
        warnings.append(f"{words}. {names[0]}'s are kept.")
    for added in vocabularies.added_differences(list(zip(names, folders, strict=True))):
        warnings.append(f"{added.told()}. Their rows are merged as one token's. {_REMEDY}")
    if strict and warnings:
        raise SourceError("--strict refuses what would be warnings:\n" + "\n".join(warnings))
    return tuple(dict.fromkeys(warnings))
