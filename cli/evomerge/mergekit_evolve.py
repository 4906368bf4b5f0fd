"""mergekit-evolve's genome files: what a run takes from them, and what it says of the rest."""

from __future__ import annotations

from typing import Any

from evomerge.recipes.recipe import SPECIES
from runs.errors import ConfigError
from runs.system.plain_text import LONGEST, shown

#: merge_method of a genome that has another name here, and why.
_SAID_BY = {"linear": "task_arithmetic"}
#: Why a key has no effect.
_INSTEAD = {
    "tasks": "fitness is measured on the items of --data, or on built-in ones",
    "limit": "search_windows and search_questions say how many items a generation draws",
    "layer_granularity": "layer_groups says how many groups of layers get genes of their own",
    "normalize": "weights are on task vectors, and how far they add up is searched, too",
    "allow_negative_weights": "weights lie between -0.5 and 1.5",
    "tokenizer_source": "sources share one vocabulary; merge others first with `forge merge`",
}


def read(document: dict[str, Any], file: str) -> tuple[dict[str, Any], list[str]]:
    """Return settings and models of a genome file, and warnings. Raises ConfigError."""
    genome = document.get("genome")
    if not isinstance(genome, dict):
        raise ConfigError(f"{file}: genome is a mapping with models, merge_method and base_model.")
    given_models = genome.get("models")
    if not isinstance(given_models, list):
        raise ConfigError(f"{file}: genome.models is a list of models.")
    models = [_model(entry, f"{file}: genome.models") for entry in given_models]
    base = genome.get("base_model")
    warnings = [
        f"{file}: {where}.override_architecture has no effect: config.json says what a model is."
        for where, entries in (("genome.models", given_models), ("genome.base_model", [base]))
        for entry in entries
        if isinstance(entry, dict) and entry.get("override_architecture")
    ]
    base = None if base is None else _model(base, f"{file}: genome.base_model")
    method = str(genome.get("merge_method", ""))[:LONGEST]
    if method == "slerp" and base in models and len(models) == 2:
        warnings.append(
            f"{file}: genome.base_model {base} is one of the two models that slerp lies between, and "
            "no ancestor: both are sources."
        )
        base = None
    settings: dict[str, Any] = {"base_models": [m for m in models if m != base]}
    if base is not None:
        settings["base_model"] = base
    species = _SAID_BY.get(method, method)
    if species in SPECIES:
        settings["species"] = [species]
        if species != method:
            warnings.append(
                f"{file}: merge_method {method}: {species} says all that it says, and more."
            )
    else:
        warnings.append(
            f"{file}: merge_method {method} is not among the techniques that are searched with genes "
            f"({', '.join(SPECIES[:5])}): the usual ones are."
        )
    for where, section in (("genome.", genome), ("", document)):
        for key in section:
            if key not in ("genome", "models", "base_model", "merge_method"):
                why = _INSTEAD.get(key, "a run has nothing that it would say")
                warnings.append(f"{file}: {where}{key} has no effect: {why}.")
    return settings, warnings


def _model(entry: Any, where: str) -> str:
    """Return a model; mergekit writes a text, or a mapping with `model`. Raises ConfigError."""
    if isinstance(entry, dict):
        if entry.get("lora"):
            raise ConfigError(
                f"{where}: {shown(entry.get('model', entry))} has an adapter (lora). Merge it into "
                "its model first with `forge merge`, and name the folder."
            )
        entry = entry.get("model")
    if isinstance(entry, dict):
        path, revision = entry.get("path"), entry.get("revision")
        if isinstance(path, str):
            if revision is not None and not isinstance(revision, str):
                raise ConfigError(
                    f"{where}: revision {shown(revision)} is no text. Write it in quotes."
                )
            entry = f"{path}@{revision}" if revision else path
    if not isinstance(entry, str) or not entry:
        raise ConfigError(
            f"{where}: a model is a path or Hub id, or {{model: PATH}}, or "
            f"{{model: {{path: PATH, revision: REVISION}}}}, and not {shown(entry)}."
        )
    return entry
