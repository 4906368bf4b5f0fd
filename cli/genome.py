"""mergekit-evolve's genome files: what a run takes from them, and what it says of the rest."""

from __future__ import annotations

from typing import Any

from evomerge.errors import ConfigError

#: merge_method of a genome → the technique of a stage that is left out, so that the other is used.
_LEFT_OUT = {
    "linear": "slerp", "slerp": "linear", "ties": "dare", "dare_ties": "ties", "dare_linear": "ties",
}  # fmt: skip
_TECHNIQUES = ("linear", "slerp", "dare", "ties", "frankenmerge", "dfs")
#: Why a key has no effect.
_INSTEAD = {
    "tasks": "fitness is measured on the items of --data, or on built-in ones",
    "limit": "search_windows and search_questions say how many items a generation draws",
    "layer_granularity": "genes hold for all layers; frankenmerge chooses blocks by measuring",
    "normalize": "a pipeline's stages say how they normalise",
    "allow_negative_weights": "the weights of a run are above zero",
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
    if method in _LEFT_OUT:
        found["techniques"] = [t for t in _TECHNIQUES if t != _LEFT_OUT[method]]
        warnings.append(
            f"{file}: merge_method {method}: the run's pipelines go without {_LEFT_OUT[method]}, and "
            "have their other stages."
        )
    else:
        warnings.append(f"{file}: merge_method {method} is no stage of a pipeline: all are used.")
    for where, given in (("genome.", genome), ("", document)):
        for key in given:
            if key not in ("genome", "models", "base_model", "merge_method"):
                why = _INSTEAD.get(key, "a run has nothing that it would say")
                warnings.append(f"{file}: {where}{key} has no effect: {why}.")
    return found, warnings
