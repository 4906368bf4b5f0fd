"""Checks of a curriculum run before any work: task families, the model, the machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evaluation import task_families, tool_tasks
from evaluation.task_families.gym import Gym
from evaluation.tool_tasks.base import LEVELS as TOOL_LEVELS
from phases.curriculum import recipes
from phases.curriculum.settings import CurriculumConfig
from runs.errors import ConfigError
from studies import training_plan

if TYPE_CHECKING:
    from weights.folders.checkpoint import Checkpoint


def check_family(config: CurriculumConfig, family: str) -> None:
    """Raise ConfigError for a family that there is not, or that has not as many levels."""
    if not task_families.uses_tools(family):
        task_family = task_families.find(family)
        if isinstance(task_family, Gym):
            task_family.check(config.levels)
        return
    name = family.removeprefix(task_families.TOOLS)
    tool_tasks.find(name)
    if name == "repair":
        raise ConfigError(
            f"{family} is left to baking: its tasks have no answer that can be learned token by token."
        )
    if config.levels > TOOL_LEVELS:
        raise ConfigError(
            f"the family {family} has {TOOL_LEVELS} levels, and levels is {config.levels}."
        )


def check_model(config: CurriculumConfig, opened: Checkpoint) -> None:
    """Raise ConfigError or SourceError for a model that cannot be trained on the tasks."""
    from evaluation.training_text.parts import given_tokenizer
    from phases.curriculum.items import check_items

    _check_layer(config, opened.config)
    context = training_plan.window(config, opened.positions)
    recipes.check_length(config, context)
    check_items(config, given_tokenizer(opened.folder), context)


def check_sandbox(config: CurriculumConfig) -> None:
    """Raise SandboxUnavailableError if a task runs programs and this machine cannot lock them in."""
    from evaluation.sandbox.sandbox import Sandbox

    if f"{task_families.TOOLS}execution" in config.families:
        Sandbox.open().close()


def _check_layer(config: CurriculumConfig, settings: Mapping[str, Any]) -> None:
    """Raise ConfigError if a self-model is asked for, and the model has no such layer."""
    from weights.training.models.self_model import SelfModel

    trained = "self_model" in (*config.arms, *config.adds) or "stages" in config.arms
    blocks = settings.get("num_hidden_layers")
    if trained and isinstance(blocks, int):
        SelfModel(weight=config.self_weight, layer=config.self_layer).of(blocks)
