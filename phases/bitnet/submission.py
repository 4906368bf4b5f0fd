"""Submission of a bitnet run: settings, model and data, checked before any work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.data import training_texts
from phases.bitnet import plan as models
from phases.bitnet.config import KNOWN, BitnetConfig
from runs.errors import ConfigError, DataError
from runs.kinds.asked import Asked, Checked, Lookup, Plan

if TYPE_CHECKING:
    from runs.kinds.kind import Kind


def plan(kind: Kind, asked: Asked, lookup: Lookup) -> Plan:
    """Return the plan of the run of one `model`. Without `domains`, those of the user's data.

    Raises ConfigError, DataError or UnavailableError before anything is started.
    """
    from weights.devices import check_device
    from weights.folders.sources import ALIASES, resolve

    unknown = sorted(role for role, given in asked.models.items() if given and role != "model")
    if unknown:
        raise ConfigError(f"a bitnet run has no models {unknown[0]!r}: it has a model.")
    names = [str(model) for model in asked.models.get("model", ())]
    if len(names) != 1:
        raise ConfigError("a bitnet run is of one model: --model model=MODEL.")
    config: BitnetConfig = kind.parse(asked.config)
    check_device(config.device, lookup.elsewhere)
    data = tuple(map(training_texts.absolute, map(str, asked.data)))
    there: Sequence[str] = KNOWN
    if data:
        there = training_texts.domains(data)
        if "domains" not in asked.config:
            config = kind.parse({**asked.config, "domains": there})
    _check_domains("domains names", config.domains, there, bool(data))
    _check_domains("mix weighs", tuple(config.mix or ()), there, bool(data))
    found = resolve(names[0], {**ALIASES, **lookup.aliases}, lookup.named)
    return Plan(kind.name, config, {"model": found, "data": data}, asked.output_dir)


def _check_domains(who: str, wanted: Sequence[str], there: Sequence[str], own: bool) -> None:
    """Raise DataError if there is no text of a domain."""
    for domain in wanted:
        if domain not in there:
            whose = "the data" if own else "the built-in text"
            raise DataError(
                f"{who} {domain}, and {whose} has no text of it: it has {', '.join(there)}."
            )


def check(plan: Plan) -> Checked:
    """Open model (header only), tokenizer and data; raise the errors that a start would raise."""
    from evaluation.training_text.parts import given_tokenizer
    from weights.folders import model_config
    from weights.folders.checkpoint import open_checkpoint
    from weights.ternary import linears, quantiser

    config, data, folder = plan.config, plan.fields["data"], Path(plan.fields["model"].path)
    opened = open_checkpoint(folder)
    models.window(config, opened.positions)
    model_config.load(folder)
    for name in (matrices := linears.of_config(opened.config)):
        if name not in opened.shapes:
            raise ConfigError(
                f"{opened.given}: it lacks the matrix {name}, which its config describes."
            )
        quantiser.check_group(name, opened.shapes[name][1][-1], config.group)
    if not matrices:
        raise ConfigError(f"{opened.given} has no linear layers: nothing in it can be ternary.")
    given_tokenizer(folder)
    if not data:
        return Checked(parameters=opened.parameters)
    found = training_texts.read(data)
    counts = {
        domain: {slice_: len(texts) for slice_, texts in split.items()}
        for domain, split in found.documents.items()
    }
    return Checked(tuple(found.notes), opened.parameters, counts)
