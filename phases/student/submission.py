"""Submission of a student run: settings, model and data, checked before any work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phases.student import sizes
from runs.errors import ConfigError
from runs.kinds.asked import Asked, Checked, Lookup, Plan
from studies import submission

if TYPE_CHECKING:
    from runs.kinds.kind import Kind


def plan(kind: Kind, asked: Asked, lookup: Lookup) -> Plan:
    """Return the plan of the run of one `model`. Raises ConfigError, DataError, UnavailableError."""
    return submission.plan(kind, asked, lookup)


def check(plan: Plan) -> Checked:
    """Open model (header only), tokenizer and data; raise the errors that a start would raise."""
    from weights.operations.resized import parameters, resized

    opened = submission.opened(plan)
    changes = sizes.changes(opened.config, plan.config)
    check_smaller(parameters(resized(opened.config, changes)), opened.parameters)
    return submission.checked(plan, opened)


def check_smaller(own: int, given: int) -> None:
    """Raise ConfigError unless a student's number of parameters is below the given model's."""
    if own >= given:
        raise ConfigError(
            f"a student of {own:,} parameters is not smaller than the given model, which has "
            f"{given:,}: set a smaller width, depth, hidden, layers or intermediate."
        )
