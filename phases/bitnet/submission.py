"""Submission of a bitnet run: settings, model and data, checked before any work."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from weights.ternary import linears, quantiser

    opened = submission.opened(plan)
    for name in (matrices := linears.of_config(opened.config)):
        if name not in opened.shapes:
            raise ConfigError(
                f"{opened.given}: it lacks the matrix {name}, which its config describes."
            )
        quantiser.check_group(name, opened.shapes[name][1][-1], plan.config.group)
    if not matrices:
        raise ConfigError(f"{opened.given} has no linear layers: nothing in it can be ternary.")
    return submission.checked(plan, opened)
