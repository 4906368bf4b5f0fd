"""Architectures and tokenizers of models before they are made: what a phase cannot take together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.config import PhaseConfig, PipelineConfig
from runs import kinds
from runs.errors import ConfigError
from runs.event_types import ModelReference
from runs.kinds import architecture
from runs.kinds.architecture import Architecture

#: Phase → role → architecture, of the models whose architecture is known.
Known = Mapping[str, Mapping[str, Architecture]]


def of_phase(
    config: PipelineConfig,
    phase: PhaseConfig,
    settings: Any,
    references: Mapping[str, ModelReference],
    architectures: Known,
) -> Mapping[str, Architecture]:
    """Return role → architecture of the models that a phase will give, of those that are known.

    Raises ConfigError if the phase is given models of several architectures, sizes or tokenizers that
    it takes together only if they agree.
    """
    inputs = {
        role: [_one(config, model, references, architectures) for model in models]
        for role, models in phase.models.items()
    }
    kind = kinds.of(phase.kind)
    _check_together(phase, kind.together, inputs)
    return kind.architectures(settings, inputs)


def _check_together(
    phase: PhaseConfig, roles: Sequence[str], inputs: Mapping[str, Sequence[Architecture | None]]
) -> None:
    """Raise ConfigError for two models that differ; models that are not known are left out."""
    every = [
        (role, model, each_layout)
        for role in roles
        for model, each_layout in zip(phase.models.get(role, ()), inputs.get(role, ()), strict=True)
        if each_layout
    ]
    for role, model, layout in every[1:]:
        first_role, first, other = every[0]
        if differ := architecture.differing(other, layout):
            raise ConfigError(
                f"it is given {first} as {first_role}, a {architecture.told(other, differ)}, and "
                f"{model} as {role}, a {architecture.told(layout, differ)}: it takes only models of one "
                "architecture and size together."
            )
        if other_tokens := _other_tokens(other, layout, first, model):
            raise ConfigError(
                f"it is given {first} as {first_role} and {model} as {role}, and {other_tokens}: it "
                "takes only models that read text alike together."
            )


def _other_tokens(layout: Architecture, other: Architecture, *names: str) -> str:
    """Return in words that most tokens of two models differ; empty if not, or if it is not known."""
    from weights.folders import vocabularies

    folders = [settings.get(architecture.TOKENIZER) for settings in (layout, other)]
    if folders[0] is None or folders[1] is None:
        return ""
    difference = vocabularies.difference(Path(folders[0]), Path(folders[1]))
    return difference.told(*names) if difference is not None and difference.foreign else ""


def _one(
    config: PipelineConfig,
    model: str,
    references: Mapping[str, ModelReference],
    architectures: Known,
) -> Architecture | None:
    """Return a model's architecture; None if it is not known before the model exists."""
    if (named := config.named(model)) is not None:
        number, role = named
        roles = architectures.get(config.phase(number).name, {})
        return roles.get(role) if role else next(iter(roles.values()), None)
    from weights.folders import model_config

    folder = Path(references[model].path)
    if not (folder / model_config.FILE).is_file():
        return None  # another machine has it, or the run that made it makes it again
    layout = architecture.of_config(model_config.read(folder))
    return {**layout, architecture.TOKENIZER: str(folder)}
