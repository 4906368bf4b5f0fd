"""Upcasters: turn the data of a run's events from an older schema into the next schema.

Pure, dictionary to dictionary. Logs are never rewritten. The values of fields that an old row
lacks are given here, and they never change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evaluation.data.outcomes import DomainOutcomes
from evomerge.fitness import composite

Data = dict[str, Any]


def _config(config: Data) -> Data:
    """Add problems, weights of domains and gates, switched off, to settings that lack them."""
    weights = {**config["fitness_weights"], "domains": {}}
    off = {"search_problems": 0, "gate_perplexity": 0.0, "stop_error": 0.0}
    return {**config, **off, "fitness_weights": weights}


def _pace(config: Data) -> Data:
    """Add batch size, evaluation dtype and lm-eval tasks to settings that lack them."""
    own = {"batch_tokens": None, "evaluation_dtype": "model", "allow_benchmarks": False}
    return {**config, **own}


def _search(config: Data) -> Data:
    """Add strategies other than elite-loser, and budgets, to settings that lack them."""
    own = {
        "tournament_size": 3, "crossover_rate": 0.7, "layer_groups": 4, "genome_detail": "full",
        "species": ["task_arithmetic", "ties"], "search_sigma": 0.1,
        "objectives": ["perplexity", "accuracy"], "niching": "none", "adaptive_mutation": False,
        "technique_selection": "uniform", "max_evaluations": None, "max_items": None,
        "max_hours": None, "max_device_hours": None,
    }  # fmt: skip
    return {**config, **own}


def _paths(config: Data) -> Data:
    """Add paths to settings that lack them; rename niching "items", then its only kind."""
    niching = {"items": "attraction"}.get(config["niching"], config["niching"])
    return {**config, "niching": niching, "path_repeats": 0, "path_blocks": None}


def _eager(data: Data) -> Data:
    """Add compiled evaluation, switched off, to settings that lack it."""
    return {**data, "config": {**data["config"], "evaluation_compile": "off"}}


_MUTATION = (
    "mutation", "mutation_rate", "mutation_sigma", "mutation_relative_to", "gene_sigma",
    "adaptive_mutation", "technique_selection",
)  # fmt: skip
_GENOME = ("species", "layer_groups", "genome_detail")
_PATHS = ("path_repeats", "path_blocks")
#: Strategy → the settings of the search that it read when all settings were flat.
_READ = {
    "auto": _GENOME,
    "elite-loser": (
        *_MUTATION, "elite_size", "mutants_per_elite", "keep_elites", "techniques", "dare_drop",
        "ties_density",
    ),
    "tournament": (
        *_GENOME, *_PATHS, *_MUTATION, "elite_size", "tournament_size", "crossover_rate", "niching",
    ),
    "cma-es": (*_GENOME, *_PATHS, "search_sigma"),
    "nsga2": (*_GENOME, *_PATHS, "objectives"),
}  # fmt: skip
_EVERY = tuple(dict.fromkeys(name for names in _READ.values() for name in names))


def _nested(config: Data) -> Data:
    """Move the settings that the strategy reads into `search`, and leave out those of others.

    A strategy of another package may have read any of them.
    """
    name = config["strategy"]
    moved = {"strategy", "population_size", *_EVERY}
    search = {key: config[key] for key in ("strategy", "population_size", *_READ.get(name, _EVERY))}
    if not search.get("path_repeats"):
        search.pop("path_blocks", None)
    return {**{k: v for k, v in config.items() if k not in moved}, "search": search}


def _submitted_10(data: Data) -> Data:
    """Give the search settings of its own; in schema 10 all settings were flat."""
    return {**data, "config": _nested(data["config"])}


def _forked_8(data: Data) -> Data:
    """Give the search settings of its own; drop changes of settings that its strategy lacks."""
    config = _nested(data["config"])
    known = config.keys() | config["search"].keys()
    changes = {name: value for name, value in data["changes"].items() if name in known}
    return {**data, "config": config, "changes": changes}


def _same(data: Data) -> Data:
    """Return the data unchanged: the later schema allows more, and defaults fill its new fields."""
    return data


def _submitted_1(data: Data) -> Data:
    """Add priority and labels; schema 1 had neither."""
    return {**data, "priority": 0, "labels": ()}


def _submitted_2(data: Data) -> Data:
    """Add the quarantine "fail"; schema 2 knew no quarantine."""
    return {**data, "quarantine": "fail"}


def _submitted_3(data: Data) -> Data:
    """Add problems and weights of domains to the settings; schema 3 knew neither."""
    return {**data, "config": _config(data["config"])}


def _submitted_4(data: Data) -> Data:
    """Add batch size and dtype to the settings; schema 4 had one batch and one dtype."""
    return {**data, "config": _pace(data["config"])}


def _submitted_5(data: Data) -> Data:
    """Add the other strategies to the settings; schema 5 had one strategy."""
    return {**data, "config": _search(data["config"])}


def _submitted_6(data: Data) -> Data:
    """Add paths to the settings; schema 6 knew no paths."""
    return {**data, "config": _paths(data["config"])}


def _forked_4(data: Data) -> Data:
    """Add paths to the settings and rename niching in the changes; schema 4 knew no paths."""
    config, changes = _paths(data["config"]), data["changes"]
    renamed = {k: config[k] if k == "niching" else v for k, v in changes.items()}
    return {**data, "changes": renamed, "config": config}


def _forked_3(data: Data) -> Data:
    """Add the other strategies to the settings; schema 3 had one strategy."""
    return {**data, "config": _search(data["config"])}


def _forked_1(data: Data) -> Data:
    """Add problems and weights of domains to the settings; schema 1 knew neither."""
    return {**data, "config": _config(data["config"])}


def _forked_2(data: Data) -> Data:
    """Add batch size and dtype to the settings; schema 2 had one batch and one dtype."""
    return {**data, "config": _pace(data["config"])}


def _started_1(data: Data) -> Data:
    """Add the strategy, elite-loser@1; schema 1 did not name it, as there was only one."""
    return {**data, "strategy": "elite-loser@1"}


def _started_2(data: Data) -> Data:
    """Return the data unchanged: schema 2 knew no problems and no grades, as the defaults say."""
    return data


def _started_3(data: Data) -> Data:
    """Return the data unchanged: schema 3 evaluated in the weights' dtype, as the default says."""
    return data


def _profiled_1(data: Data) -> Data:
    """Return the data unchanged: schema 1 lacked the latency's spread, as the default says."""
    return data


def _evaluated_1(data: Data) -> Data:
    """Add accuracy by domain, computed from the outcomes; schema 1 did not record it."""
    measured = data["components"]
    if measured is None:
        return data
    seen = {d: DomainOutcomes.model_validate(o) for d, o in data["outcomes"].items()}
    found = composite.components(seen, measured["flops"], measured["bytes"])
    assert found is not None
    return {**data, "components": {**measured, "accuracies": found.accuracies}}


#: (event type, schema) → upcaster to the next schema.
UPCASTERS: dict[tuple[str, int], Callable[[Data], Data]] = {
    ("submitted", 1): _submitted_1,
    ("submitted", 2): _submitted_2,
    ("submitted", 3): _submitted_3,
    ("submitted", 4): _submitted_4,
    ("submitted", 5): _submitted_5,
    ("submitted", 6): _submitted_6,
    ("forked", 1): _forked_1,
    ("forked", 3): _forked_3,
    ("forked", 4): _forked_4,
    ("converged", 1): _same,
    ("forked", 2): _forked_2,
    ("started", 1): _started_1,
    ("started", 2): _started_2,
    ("started", 3): _started_3,
    ("started", 4): _same,
    ("started", 5): _same,
    ("started", 6): _same,
    ("profiled", 1): _profiled_1,
    ("evaluated", 1): _evaluated_1,
    ("sampled", 1): _same,
    ("crossed", 1): _same,
    ("submitted", 7): _same,
    ("submitted", 8): _eager,
    ("forked", 5): _same,
    ("forked", 6): _eager,
    ("submitted", 9): _same,
    ("forked", 7): _same,
    ("submitted", 10): _submitted_10,
    ("forked", 8): _forked_8,
    ("resumed", 1): _same,
    ("retried", 1): _same,
    ("priority_changed", 1): _same,
}
#: Events that record a build; their later schemas added kinds of recipes.
UPCASTERS |= {
    (kind, schema): _same
    for kind in ("baseline_built", "seeded", "merged", "mutated")
    for schema in (1, 2)
}
