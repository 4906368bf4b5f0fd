"""Submission of a measurement: models and data, checked before any work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.loading import load_items, texts_of
from phases.measure.events import ROLES
from runs.errors import ConfigError
from runs.kinds.asked import Asked, Checked, Lookup, Plan

if TYPE_CHECKING:
    from runs.kinds.kind import Kind


def plan(kind: Kind, asked: Asked, lookup: Lookup) -> Plan:
    """Return the plan of a measurement of one `model`. Raises ConfigError or UnavailableError."""
    from weights.devices import check_device
    from weights.folders.sources import ALIASES, resolve

    config = kind.parse(asked.config)
    if unknown := sorted(set(asked.models) - set(ROLES)):
        raise ConfigError(f"a measurement has no models {unknown[0]!r}: it has {', '.join(ROLES)}.")
    if len(asked.models.get("model", ())) != 1:
        raise ConfigError("a measurement is of one model: --model model=MODEL.")
    check_device(config.device, lookup.elsewhere)
    aliases = {**ALIASES, **lookup.aliases}
    names = {role: tuple(map(str, asked.models.get(role, ()))) for role in ROLES}
    # Each name once: to find a model may take long.
    every = dict.fromkeys(name for some in names.values() for name in some)
    found = {name: resolve(name, aliases, lookup.named) for name in every}
    given = {role: tuple(found[name] for name in some) for role, some in names.items()}
    data = tuple(kind.placed(str(place)) for place in asked.data)
    return Plan(kind.name, config, {**given, "data": data}, asked.output_dir)


def check(plan: Plan) -> Checked:
    """Open models (headers only), tokenizers and data; raise the errors that a start would raise."""
    from evaluation.loading import load_tokenizer
    from weights.folders import model_config
    from weights.folders.checkpoint import open_checkpoint

    parameters = 0
    notes: list[str] = []
    for role in ROLES:
        for model in plan.fields[role]:
            opened = open_checkpoint(Path(model.path))
            model_config.check_predicts_tokens(opened.given, opened.config)
            load_tokenizer(model.path)
            parameters = max(parameters, opened.parameters)
            notes += opened.warnings
    on = plan.config.slice
    items = load_items(plan.fields["data"], parameters=parameters, note=notes.append, needed=(on,))
    counts = {domain: {on: len(some)} for domain, some in texts_of(items, on).items()}
    return Checked(tuple(notes), parameters, counts)
