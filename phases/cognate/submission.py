"""Submission of a cognate run: settings, base and data, checked before any work."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.data import training_texts
from phases.cognate.settings import KNOWN, NAME, CognateConfig
from runs.errors import ConfigError, DataError
from runs.kinds.asked import Asked, Checked, Lookup, Plan
from runs.record.device_setting import AUTO, CPU
from studies.submission import trainable

if TYPE_CHECKING:
    from runs.kinds.kind import Kind


def plan(kind: Kind, request: Asked, lookup: Lookup) -> Plan:
    """Return the plan of the run. Without `domains`, the user's data gives a specialist a domain.

    Raises ConfigError, DataError or UnavailableError before anything is started.
    """
    from evaluation.training_text import own_texts
    from weights.folders.sources import ALIASES, resolve

    unknown = sorted(role for role, models in request.models.items() if models and role != "base")
    if unknown:
        raise ConfigError(f"a cognate run has no models {unknown[0]!r}: it may have a base.")
    base = [str(model) for model in request.models.get("base", ())]
    if len(base) > 1:
        raise ConfigError("a cognate run has one base. Give one.")
    config: CognateConfig = kind.parse(request.config)
    data = tuple(map(training_texts.absolute, map(str, request.data)))
    there = KNOWN
    if data:
        there = training_texts.domains(data)
        if "domains" not in request.config:
            _check_names(there)
            config = kind.parse({**request.config, "domains": there})
    training_texts.check_domains("domains names", config.domains, there, bool(data))
    training_texts.check_domains("mix weighs", tuple(config.mix or ()), there, bool(data))
    if not data:
        own_texts.check(config.seed, config.size.characters, config.domains)
    if base:
        _check_base(config)
    if config.processes > 1:
        from weights.training.team import check_shares

        if lookup.elsewhere and config.device == AUTO:  # a worker's device is one GPU
            config = config.model_copy(update={"device": CPU})
        check_shares(config.size.batch, config.processes, config.device, lookup.elsewhere)
    reference = resolve(base[0], {**ALIASES, **lookup.aliases}, lookup.named) if base else None
    return Plan("cognate", config, {"base": reference, "data": data}, request.output_dir)


def _check_names(there: Sequence[str]) -> None:
    """Raise DataError if a domain of the data cannot be the name of a model and its folder."""
    for domain in there:
        if not re.fullmatch(NAME, domain):
            raise DataError(
                f"the domain {domain!r} of the data cannot name a specialist: a name has letters, "
                "digits, _ and -, 32 at most. Give it one: --data NAME=PATH."
            )


#: Setting → what a given base has instead, if that is not its architecture.
_OWN = {"vocabulary": "tokenizer"}


def _check_base(config: CognateConfig) -> None:
    """Raise ConfigError for a setting that says how a base is made: a given one is there."""
    for name in ("architecture", "memory", "recursions", "halting", "vocabulary"):
        if getattr(config, name) != CognateConfig.model_fields[name].default:
            raise ConfigError(
                f"a base that is given has its own {_OWN.get(name, 'architecture')}: leave out {name}."
            )
    for name in ("base_tokens", "base_rate"):
        if getattr(config, name) is not None:
            raise ConfigError(f"a base that is given is not trained further: leave out {name}.")


def check(plan: Plan) -> Checked:
    """Open base (header only), tokenizer and data; raise the errors that a start would raise."""
    config, base, data = plan.config, plan.fields["base"], plan.fields["data"]
    parameters: int = config.size.parameters
    warnings: tuple[str, ...] = ()
    if base is not None:
        from evaluation.training_text.parts import given_tokenizer
        from phases.cognate.recipes import window
        from weights.folders import model_config
        from weights.folders.checkpoint import open_checkpoint

        folder = Path(base.path)
        opened = open_checkpoint(folder)
        window(config, opened.positions)
        parameters, warnings = opened.parameters, opened.warnings
        opened.check_plain("trained")
        trainable(config, opened.config)
        model_config.check_predicts_tokens(folder, opened.config)
        given_tokenizer(folder)
    corpus = training_texts.read(data) if data else None
    if base is None:
        from phases.cognate.text import configuration, learning, train_tokenizer

        trainable(config, configuration(config.size).to_dict())
        texts = learning(config, None if corpus is None else corpus.documents)
        train_tokenizer(texts, config.size.vocabulary)
    if corpus is None:
        return Checked(warnings, parameters)
    counts = {
        domain: {slice_: len(texts) for slice_, texts in split.items()}
        for domain, split in corpus.documents.items()
    }
    return Checked((*warnings, *corpus.notes), parameters, counts)
