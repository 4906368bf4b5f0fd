"""Validation of what a run of any kind is submitted with.

Terminal, API and Python all use this module, so that all refuse the same input with the same words.
"""

from __future__ import annotations

from runs import kinds
from runs.kinds.asked import Asked, Checked, Lookup, Plan
from weights.devices import check_device


def plan(asked: Asked, lookup: Lookup = Lookup()) -> Plan:
    """Return the plan of a run. Raises ConfigError or UnavailableError; nothing is started."""
    made = kinds.of(asked.kind).plan(asked, lookup)
    check_device(made.config.device, lookup.elsewhere)
    return made


def check(plan: Plan) -> Checked:
    """Open models (headers only), tokenizer and data; raise the errors that a run would raise."""
    return kinds.of(plan.kind).check(plan)
