"""mergekit-evolve's genome files: what a run takes from them, and what it says of the rest."""

from __future__ import annotations

from typing import Any

from evomerge.errors import ConfigError
from evomerge.recipe import SPECIES

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
    """Settings and models of a genome file, and warnings. Raises ConfigError."""
    genome = document.get("genome")
    if not isinstance(genome, dict):
        raise ConfigError(f"{file}: genome is a mapping with models, merge_method and base_model.")
    models = genome.get("models")
    if not isinstance(models, list) or not all(isinstance(m, str) for m in models):
        raise ConfigError(f"{file}: genome.models is a list of models.")
    base = genome.get("base_model")
    found: dict[str, Any] = {"base_models": [m for m in models if m != base]}
    if base is not None:
        found["base_model"] = str(base)
    warnings = []
    method = str(genome.get("merge_method", ""))
    species = _SAID_BY.get(method, method)
    if species in SPECIES:
        found["species"] = [species]
        if species != method:
            warnings.append(
                f"{file}: merge_method {method}: {species} says all that it says, and more."
            )
    else:
        warnings.append(
            f"{file}: merge_method {method} is not among the techniques that are searched with genes "
            f"({', '.join(SPECIES[:5])}): the usual ones are."
        )
    for where, given in (("genome.", genome), ("", document)):
        for key in given:
            if key not in ("genome", "models", "base_model", "merge_method"):
                why = _INSTEAD.get(key, "a run has nothing that it would say")
                warnings.append(f"{file}: {where}{key} has no effect: {why}.")
    return found, warnings
