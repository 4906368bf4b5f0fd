"""Validation of what a run of any kind is submitted with.

Terminal, API and Python all use this module, so that all refuse the same input with the same words.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from runs import kinds
from runs.errors import ConfigError
from runs.kinds.asked import Asked, Checked, Lookup, Plan, inputs
from weights.devices import check_device
from weights.storage.output_folder import check_apart


def plan(asked: Asked, lookup: Lookup = Lookup()) -> Plan:
    """Return the plan of a run. Nothing is started.

    Raises ConfigError, UnavailableError, ConflictError for an output folder that holds an input.
    """
    asked, aliases = _aliases(asked)
    lookup = replace(lookup, aliases={**lookup.aliases, **aliases})
    made = kinds.of(asked.kind).plan(asked, lookup)
    check_device(made.config.device, lookup.elsewhere)
    if made.output_dir is not None:
        check_apart(Path(made.output_dir), inputs(made))
    return made


def _aliases(asked: Asked) -> tuple[Asked, dict[str, str]]:
    """Return the request without the settings' `aliases`, and these. Raises ConfigError."""
    config = dict(asked.config)
    given = config.pop("aliases", {})
    if not isinstance(given, dict) or not all(
        isinstance(name, str) and isinstance(model, str) for name, model in given.items()
    ):
        raise ConfigError('aliases have a name and a model each, as mine = "owner/name".')
    return replace(asked, config=config), given


def check(plan: Plan) -> Checked:
    """Open models (headers only), tokenizer and data; raise the errors that a run would raise."""
    return kinds.of(plan.kind).check(plan)
