"""Submission of a quietstar run: settings, model and data, checked before any work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phases.quietstar.plan import window
from runs.kinds.asked import Asked, Checked, Lookup, Plan
from studies import submission

if TYPE_CHECKING:
    from runs.kinds.kind import Kind


def plan(kind: Kind, asked: Asked, lookup: Lookup) -> Plan:
    """Return the plan of the run of one `model`. Raises ConfigError, DataError, UnavailableError."""
    return submission.plan(kind, asked, lookup)


def check(plan: Plan) -> Checked:
    """Open model (header only), tokenizer and data; raise the errors that a start would raise."""
    opened = submission.opened(plan)
    window(plan.config, opened.positions)
    return submission.checked(plan, opened)
