"""Settings as people see them: a list in groups, and one flat JSON schema for forms.

`forge settings`, docs/settings.md and the API's form are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from agent_forge.events.envelope import Plain
from agent_forge.evomerge.config import REFUSED, RENAMED, STRATEGIES, EvoMergeConfig
from agent_forge.evomerge.fitness.composite import Weighting
from agent_forge.evomerge.search_settings import MODELS, SearchSettings, having
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.kinds.setting_words import Labels, labelled

#: Group of settings, for people → name → label.
GROUPS: Labels = {
    "Run": {
        "generations": "Generations",
        "convergence_threshold": "Improvement that counts",
        "convergence_patience": "Generations without improvement",
        "seed": "Seed",
        "device": "Device",
        "strict": "Refuse unlike sources",
    },
    "Budgets": {
        "budget_hours": "Time for the whole run",
        "max_hours": "Hours by the clock",
        "max_device_hours": "Hours of all devices",
        "max_evaluations": "Evaluations",
        "max_items": "Items to score",
    },
    "Data": {
        "search_windows": "Windows of a generation",
        "search_questions": "Questions of a generation",
        "search_problems": "Problems of a generation",
        "context": "Tokens of a window",
        "allow_benchmarks": "Allow benchmarks as objectives",
    },
    "Fitness": {
        "fitness_weights": "Weights of fitness",
        "normalise": "Unit of fitness",
        "skills": "How domains are put together",
        "gate_perplexity": "Perplexity that drops a candidate",
        "stop_error": "Error rate of early stopping",
    },
    "Evaluation": {
        "batch_tokens": "Tokens of a forward pass",
        "evaluation_dtype": "Dtype of evaluation",
        "evaluation_compile": "Compiled passes",
    },
    "Diversity": {
        "diversity_weight": "Weight of diversity",
        "min_diversity": "Diversity that warns",
        "reseed_diversity": "Critical diversity",
    },
}
#: The same for the settings of the search, of all strategies.
SEARCH = "Search"
SEARCHED: Labels = {
    SEARCH: {
        "strategy": "Strategy",
        "population_size": "Size of the population",
        "species": "Merge techniques",
        "layer_groups": "Groups of layers",
        "genome_detail": "Detail of the genome",
        "elite_size": "Size of the elite",
        "mutation": "Target of mutations",
        "mutation_rate": "Rate of weight noise",
        "mutation_sigma": "Strength of weight noise",
        "mutation_relative_to": "Unit of weight noise",
        "gene_sigma": "Step of genes",
        "adaptive_mutation": "Adaptive steps",
        "technique_selection": "Choice of techniques",
        "mutants_per_elite": "Mutants of each elite",
        "keep_elites": "Elites compete with children",
        "techniques": "Techniques of pipelines",
        "dare_drop": "Share that DARE drops",
        "ties_density": "Share that TIES keeps",
        "path_repeats": "Repeats of a block",
        "path_blocks": "Most blocks of a path",
        "tournament_size": "Candidates of a tournament",
        "crossover_rate": "Share of children with two parents",
        "niching": "Niching",
        "search_sigma": "Spread of the first generation",
        "objectives": "Objectives of the Pareto front",
    }
}


@dataclass(frozen=True)
class Setting:
    """A setting as people see it."""

    name: str
    group: str
    #: The default, as JSON has it.
    default: object
    #: What it is, in words.
    description: str
    #: Strategies that have it; empty: every run has it.
    strategies: tuple[str, ...] = ()


def settings() -> list[Setting]:
    """Return a list of `Setting`, all settings group by group; those of the search last."""
    usual = EvoMergeConfig().flat()
    common_settings = [
        Setting(name, group, usual[name], _words(EvoMergeConfig, name))
        for group, names in GROUPS.items()
        for name in names
    ]
    searched: dict[str, Setting] = {}
    for model in MODELS.values():
        usual = {**model.model_validate({}).model_dump(mode="json"), "strategy": STRATEGIES[0]}
        for name, default in usual.items():
            shared = name in SearchSettings.model_fields
            words = _words(SearchSettings if shared else model, name)
            strategies = () if shared else tuple(having(name))
            searched.setdefault(name, Setting(name, SEARCH, default, words, strategies))
    return common_settings + list(searched.values())


def _words(model: type[BaseModel], name: str) -> str:
    return " ".join((model.model_fields[name].description or "").split())


def flat_schema() -> Plain:
    """Return one JSON schema (dict) of all settings, those of every strategy beside the others.

    A setting that only some strategies have names them under `strategies`. Every property has a label
    (`title`), a `group` and its description. A value that suits the schema may still be refused with
    the strategy that is chosen.
    """
    schema = EvoMergeConfig.model_json_schema()
    del schema["properties"]["search"]
    schema["$defs"] = {Weighting.__name__: schema["$defs"][Weighting.__name__]}
    for model in (*MODELS.values(), SearchSettings):
        for name, field in model.model_json_schema()["properties"].items():
            if name not in SearchSettings.model_fields:
                schema["properties"][name] = {**field, "strategies": having(name)}
            elif model is SearchSettings:
                schema["properties"][name] = field
    schema["properties"]["strategy"]["default"] = STRATEGIES[0]
    schema["properties"]["budget_hours"]["anyOf"].append({"type": "string"})
    groups = {**SEARCHED, **GROUPS}
    words = {name: (group, label) for group in groups for name, label in groups[group].items()}
    return labelled(schema, words)


def options(name: str) -> list[dict[str, object]]:
    """Return a list of dicts, the settings with `name` in their names, now or in the documents.

    Raises ConfigError if there is none, with the reason for a name of the documents that is left out.
    """
    meant = {new for old, new in RENAMED.items() if name and name in old}
    rows = [
        {
            "name": setting.name,
            "group": setting.group,
            "default": setting.default,
            "what": setting.description,
            "strategies": list(setting.strategies),
        }
        for setting in settings()
        if name in setting.name or setting.name in meant
    ]
    if not rows:
        why = REFUSED.get(name)
        complaint = f"is left out: {why}" if why else "is not known. `forge settings` lists them"
        raise ConfigError(f"setting {name} {complaint}.")
    return rows
