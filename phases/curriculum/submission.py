"""Submission of a curriculum run: settings, model and tasks, checked before any work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evaluation import task_families
from evaluation.given_model_runs import submission, training_plan
from phases.curriculum import plan as plans
from runs.errors import ConfigError
from runs.kinds.asked import Asked, Checked, Lookup, Plan

if TYPE_CHECKING:
    from runs.kinds.kind import Kind


def plan(kind: Kind, asked: Asked, lookup: Lookup) -> Plan:
    """Return the plan of the run of one `model`. Raises ConfigError or UnavailableError."""
    if asked.data:
        raise ConfigError(f"{kind.title} takes no data: its tasks are made by a program.")
    config, found = submission.of_model(kind, asked, lookup)
    for family in config.families:
        task_families.find(family)
    return Plan(kind.name, config, {"model": found, "data": ()}, asked.output_dir)


def check(plan: Plan) -> Checked:
    """Open the model (header only) and its tokenizer; raise the errors that a start would raise."""
    from evaluation.training_text.parts import given_tokenizer
    from phases.curriculum.tasks.items import check_items

    opened = submission.opened(plan)
    context = training_plan.window(plan.config, opened.positions)
    plans.check_length(plan.config, context)
    tokenizer = given_tokenizer(Path(plan.fields["model"].path))
    check_items(plan.config, tokenizer, context)
    return Checked(parameters=opened.parameters)
