"""Submission of a curriculum run: settings, model and tasks, checked before any work."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation import task_families, tool_tasks
from evaluation.task_families.gym import Gym
from evaluation.tool_tasks.base import LEVELS as TOOL_LEVELS
from phases.curriculum import plan as plans
from phases.curriculum.config import CurriculumConfig
from runs.errors import ConfigError
from runs.kinds.asked import Asked, Checked, Lookup, Plan
from studies import submission, training_plan

if TYPE_CHECKING:
    from runs.kinds.kind import Kind


def plan(kind: Kind, asked: Asked, lookup: Lookup) -> Plan:
    """Return the plan of the run of one `model`. Raises ConfigError or UnavailableError."""
    if asked.data:
        raise ConfigError(f"{kind.title} takes no data: its tasks are made by a program.")
    config, found = submission.of_model(kind, asked, lookup)
    return Plan(kind.name, config, {"model": found, "data": ()}, asked.output_dir)


def check_settings(config: CurriculumConfig) -> None:
    """Raise ConfigError or UnavailableError for a family that cannot be trained on."""
    for family in config.families:
        find(config, family)


def find(config: CurriculumConfig, family: str) -> None:
    """Raise ConfigError for a family that there is not, or that has not as many levels."""
    if not task_families.uses_tools(family):
        found = task_families.find(family)
        if isinstance(found, Gym):
            found.check(config.levels)
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


def check(plan: Plan) -> Checked:
    """Open the model (header only) and its tokenizer; raise the errors that a start would raise."""
    from evaluation.training_text.parts import given_tokenizer
    from phases.curriculum.tasks.items import check_items

    opened = submission.opened(plan)
    check_layer(plan.config, opened.config)
    context = training_plan.window(plan.config, opened.positions)
    plans.check_length(plan.config, context)
    tokenizer = given_tokenizer(Path(plan.fields["model"].path))
    check_items(plan.config, tokenizer, context)
    return Checked(opened.warnings, opened.parameters)


def check_machine(config: CurriculumConfig) -> None:
    """Raise SandboxUnavailableError if a task runs programs and this machine cannot lock them in."""
    from evaluation.sandbox.sandbox import Sandbox

    if f"{task_families.TOOLS}execution" in config.families:
        Sandbox.open().close()


def check_layer(config: CurriculumConfig, given: Mapping[str, Any]) -> None:
    """Raise ConfigError if a self-model is asked for, and the model has no such layer."""
    from weights.training.models.self_model import SelfModel

    asked = "self_model" in (*config.arms, *config.adds) or "stages" in config.arms
    blocks = given.get("num_hidden_layers")
    if asked and isinstance(blocks, int):
        SelfModel(weight=config.self_weight, layer=config.self_layer).of(blocks)
