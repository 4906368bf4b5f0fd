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


def plan(request: Asked, lookup: Lookup = Lookup()) -> Plan:
    """Return the plan of a run. Nothing is started.

    Raises ConfigError, UnavailableError, ConflictError for an output folder that holds an input.
    """
    config, aliases = without_aliases(request.config)
    request = replace(request, config=config)
    lookup = replace(lookup, aliases={**lookup.aliases, **aliases})
    kind = kinds.of(request.kind)
    run_plan = kind.plan(request, lookup)
    kind.check_settings(run_plan.config)
    if not lookup.elsewhere:
        kind.check_machine(run_plan.config)
    check_device(run_plan.config.device, lookup.elsewhere)
    if run_plan.output_dir is not None:
        check_apart(Path(run_plan.output_dir), inputs(run_plan))
    return run_plan


def check(plan: Plan) -> Checked:
    """Open models (headers only), tokenizer and data; raise the errors that a run would raise."""
    return kinds.of(plan.kind).check(plan)
