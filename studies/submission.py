"""Submission of a run that trains from one given model: settings, model and data, checked first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.data import training_texts
from runs.errors import ConfigError
from runs.event_types import ModelReference
from runs.kinds.asked import Asked, Checked, Lookup, Plan
from studies import training_plan
from studies.settings import KNOWN

#: Settings and domains of the user's data → domains of built-in text beside them.
Added = Callable[[Any, Sequence[str]], Sequence[str]]

if TYPE_CHECKING:
    from runs.kinds.kind import Kind
    from weights.folders.checkpoint import Checkpoint


def plan(kind: Kind, asked: Asked, lookup: Lookup, added: Added = lambda config, own: ()) -> Plan:
    """Return the plan of the run of one `model`. Without `domains`, those of the user's data.

    `added` says which domains of built-in text the run reads beside the user's own. Every domain that
    is measured has text in every slice.

    Raises ConfigError, DataError or UnavailableError before anything is started.
    """
    from evaluation.training_text import own_texts

    config, found = of_model(kind, asked, lookup)
    data = tuple(map(training_texts.absolute, map(str, asked.data)))
    there: Sequence[str] = KNOWN
    beside: Sequence[str] = ()
    if data:
        own = training_texts.domains(data)
        beside = added(config, own)
        there = (*own, *beside)
        if "domains" not in asked.config:
            config = kind.parse({**asked.config, "domains": there})
    training_texts.check_domains("domains names", config.domains, there, bool(data))
    training_texts.check_domains("mix weighs", tuple(config.mix or ()), there, bool(data))
    own_texts.check(config.seed, config.characters, beside if data else config.domains)
    return Plan(kind.name, config, {"model": found, "data": data}, asked.output_dir)


def of_model(kind: Kind, asked: Asked, lookup: Lookup) -> tuple[Any, ModelReference]:
    """Return the settings of a run of one `model`, and the model.

    Raises ConfigError or UnavailableError.
    """
    from weights.devices import check_device
    from weights.folders.sources import ALIASES, resolve

    unknown = sorted(role for role, given in asked.models.items() if given and role != "model")
    if unknown:
        raise ConfigError(f"{kind.title} has no models {unknown[0]!r}: it has a model.")
    names = [str(model) for model in asked.models.get("model", ())]
    if len(names) != 1:
        raise ConfigError(f"{kind.title} is of one model: --model model=MODEL.")
    config = kind.parse(asked.config)
    check_device(config.device, lookup.elsewhere)
    return config, resolve(names[0], {**ALIASES, **lookup.aliases}, lookup.named)


def opened(plan: Plan) -> Checkpoint:
    """Open the given model (header only). Raises SourceError; ConfigError for a window too long."""
    from weights.folders import model_config
    from weights.folders.checkpoint import open_checkpoint

    folder = Path(plan.fields["model"].path)
    found = open_checkpoint(folder)
    found.check_plain("trained")
    model_config.check_predicts_tokens(folder, found.config)
    training_plan.window(plan.config, found.positions)
    return found


def trainable(config: Any, settings: Mapping[str, Any]) -> int | None:
    """Return the parameters of the adapters for a model by its config.json; None without adapters.

    Raises ConfigError for layers that the model lacks, and a rank that they have not.
    """
    if config.train == "full":
        return None
    from weights.training.models import low_rank

    return low_rank.count(settings, config.lora_rank, config.lora_modules)


def checked(plan: Plan, given: Checkpoint) -> Checked:
    """Open tokenizer and data; raise the errors that a start would raise."""
    from evaluation.training_text.parts import given_tokenizer

    given_tokenizer(Path(plan.fields["model"].path))
    if not plan.fields["data"]:
        return Checked(given.warnings, given.parameters)
    found = training_texts.read(plan.fields["data"])
    counts = {
        domain: {slice_: len(texts) for slice_, texts in split.items()}
        for domain, split in found.documents.items()
    }
    return Checked((*given.warnings, *found.notes), given.parameters, counts)
