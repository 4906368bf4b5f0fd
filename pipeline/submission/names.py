"""Names of models and data in a pipeline's settings: those of phases, and those from outside. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipeline.config import PipelineConfig
from pipeline.events import Submitted
from runs.errors import ConfigError
from runs.kinds.asked import Named
from runs.kinds.kind import Kind
from runs.lists import model_names

#: Phases of the longest pipeline.
MOST_PHASES = 64


def check_length(config: PipelineConfig) -> None:
    """Raise ConfigError for a pipeline without phases, or with too many."""
    if not config.phases:
        raise ConfigError("a pipeline needs at least one phase.")
    if len(config.phases) > MOST_PHASES:
        raise ConfigError(
            f"a pipeline has {len(config.phases)} phases: give at most {MOST_PHASES}."
        )


def with_colons(kind: Kind, config: PipelineConfig, there: Callable[[str], bool]) -> PipelineConfig:
    """Return the settings with PHASE:ROLE for PHASE/ROLE. Raises ConfigError.

    A folder of that path, by `there`, and a Hub id with a revision stay as they are.
    """
    names = [phase.name for phase in config.phases]

    def said(model: str) -> str:
        phase, sign, role = model_names.split(model)
        meant = sign == "/" and role and phase in names and "@" not in model
        return f"{phase}:{role}" if meant and not there(model) else model

    plain = config.model_dump(mode="json", exclude_unset=True)
    for phase in plain.get("phases", []):
        models_by_role = phase.get("models", {})
        phase["models"] = {
            role: [said(model) for model in models] for role, models in models_by_role.items()
        }
        if phase.get("unchanged"):
            phase["unchanged"] = said(phase["unchanged"])
    return (
        config if plain == config.model_dump(mode="json", exclude_unset=True) else kind.parse(plain)
    )


def named(kind: Kind, config: PipelineConfig, there: Callable[[str], bool]) -> Named:
    """Return the models and data that are of no phase; `there` as for `with_colons`."""
    check_length(config)
    config = with_colons(kind, config, there)
    models = [
        model for phase in config.phases for model in phase.given if config.named(model) is None
    ]
    entries = [*(entry for phase in config.phases for entry in phase.data), *config.test]
    data = [entry for entry in entries if config.items_of(entry) is None]
    return Named(tuple(dict.fromkeys(models)), tuple(dict.fromkeys(data)))


def again(submitted: Submitted, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings `config` of a submitted pipeline with names that mean the same anywhere.

    Folders and data have their whole paths, Hub models their commits; models of the log keep the names
    that they were found by.
    """

    def meant(model: str) -> str:
        reference = submitted.given.get(model)
        if reference is None or reference.digest is not None:  # of a phase, or of the log
            return model
        return f"{reference.hub_id}@{reference.revision}" if reference.hub_id else reference.path

    def phase(phase_settings: Mapping[str, Any]) -> dict[str, Any]:
        place = submitted.places.get(phase_settings["name"])
        models = {role: list(map(meant, names)) for role, names in phase_settings["models"].items()}
        unchanged = phase_settings["unchanged"] and meant(phase_settings["unchanged"])
        data = phase_settings["data"] if place is None else list(place)
        return {**phase_settings, "models": models, "data": data, "unchanged": unchanged}

    settings = {**config, "phases": [phase(entry) for entry in config.get("phases", [])]}
    return {**settings, "test": list(submitted.test)} if submitted.test else settings
