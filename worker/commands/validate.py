"""Validation of what a run of any kind is submitted with.

Terminal, API and Python all use this module, so that all refuse the same input with the same words.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from runs import kinds
from runs.kinds.asked import Asked, Checked, Lookup, Plan, inputs, without_aliases
from weights.devices import check_device
from weights.storage.output_folder import check_apart


def plan(asked: Asked, lookup: Lookup = Lookup()) -> Plan:
    """Return the plan of a run. Nothing is started.

    Raises ConfigError, UnavailableError, ConflictError for an output folder that holds an input.
    """
    config, aliases = without_aliases(asked.config)
    asked = replace(asked, config=config)
    lookup = replace(lookup, aliases={**lookup.aliases, **aliases})
    kind = kinds.of(asked.kind)
    made = kind.plan(asked, lookup)
    kind.check_settings(made.config)
    if not lookup.elsewhere:
        kind.check_machine(made.config)
    check_device(made.config.device, lookup.elsewhere)
    if made.output_dir is not None:
        check_apart(Path(made.output_dir), inputs(made))
    return made


def check(plan: Plan) -> Checked:
    """Open models (headers only), tokenizer and data; raise the errors that a run would raise."""
    return kinds.of(plan.kind).check(plan)
