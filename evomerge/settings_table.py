"""Settings as people see them: a list in groups, and one flat JSON schema for forms.

`forge settings`, docs/settings.md and the API's form are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from evomerge.config import REFUSED, RENAMED, STRATEGIES, EvoMergeConfig
from evomerge.fitness.composite import Weighting
from evomerge.search_settings import MODELS, SearchSettings, having
from runs.errors import ConfigError

#: Group of settings, for people → names.
GROUPS = {
    "Run": (
        "generations",
        "convergence_threshold",
        "convergence_patience",
        "seed",
        "device",
        "strict",
    ),
    "Budgets": ("budget_hours", "max_hours", "max_device_hours", "max_evaluations", "max_items"),
    "Data": (
        "search_windows",
        "search_questions",
        "search_problems",
        "context",
        "allow_benchmarks",
    ),
    "Fitness": ("fitness_weights", "normalise", "skills", "gate_perplexity", "stop_error"),
    "Evaluation": ("batch_tokens", "evaluation_dtype", "evaluation_compile"),
    "Diversity": ("diversity_weight", "min_diversity", "reseed_diversity"),
}


@dataclass(frozen=True)
class Setting:
    """A setting as people see it."""

    name: str
    group: str
    #: The default, as JSON has it.
    default: Any
    #: What it is, in words.
    description: str
    #: Strategies that have it; empty: every run has it.
    strategies: tuple[str, ...] = ()


def settings() -> list[Setting]:
    """Return all settings, in groups; those of the search last."""
    usual = EvoMergeConfig().model_dump(mode="json")
    found = [
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
            own = () if shared else tuple(having(name))
            searched.setdefault(name, Setting(name, "Search", default, words, own))
    return found + list(searched.values())


def _words(model: type[BaseModel], name: str) -> str:
    return " ".join((model.model_fields[name].description or "").split())


def flat_schema() -> dict[str, Any]:
    """Return one JSON schema of all settings, those of every strategy beside the others.

    A setting that only some strategies have names them under `strategies`. Every property keeps its
    description; a value that suits the schema may still be refused with the strategy that is chosen.
    """
    schema = EvoMergeConfig.model_json_schema()
    del schema["properties"]["search"]
    schema["$defs"] = {Weighting.__name__: schema["$defs"][Weighting.__name__]}
    for model in (*MODELS.values(), SearchSettings):
        for name, found in model.model_json_schema()["properties"].items():
            if name not in SearchSettings.model_fields:
                schema["properties"][name] = {**found, "strategies": having(name)}
            elif model is SearchSettings:
                schema["properties"][name] = found
    schema["properties"]["strategy"]["default"] = STRATEGIES[0]
    schema["properties"]["budget_hours"]["anyOf"].append({"type": "string"})
    return schema


def options(name: str) -> list[dict[str, Any]]:
    """Return the settings with `name` in their names, now or in the source documents.

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
        told = f"is left out: {why}" if why else "is not known. `forge settings` lists them"
        raise ConfigError(f"setting {name} {told}.")
    return rows
