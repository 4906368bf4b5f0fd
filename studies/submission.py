"""Submission of a run that trains from one given model: settings, model and data, checked first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from typing_extensions import override

from agent_forge.evaluation.data import training_texts
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.event_types import ModelReference
from agent_forge.runs.kinds.asked import Checked, Lookup, Plan, Requests, RunRequest
from agent_forge.runs.kinds.capability import S
from agent_forge.runs.kinds.setting_words import KindSettings
from agent_forge.studies import training_plan
from agent_forge.studies.settings import KNOWN, Adapted

#: Settings and domains of the user's data → domains of built-in text beside them.
Added = Callable[[Any, Sequence[str]], Sequence[str]]

if TYPE_CHECKING:
    from agent_forge.runs.kinds.kind import AnyKind
    from agent_forge.weights.folders.checkpoint import Checkpoint


class StudySettings(KindSettings[S]):
    """The rules of a study's settings."""

    @override
    def fit(self, settings: Mapping[str, object], config: BaseModel) -> bool:
        """Return True if the settings are those; domains that were not given are those of the data."""
        domains = config.model_dump(include={"domains", "contexts"})
        return super().fit({**domains, **settings}, config)


class StudyRequests(Requests[S]):
    """The ways in which users ask for runs of a study."""

    @override
    def placed(self, data: str) -> str:
        return training_texts.absolute(data)


class ItemRequests(Requests[S]):
    """The ways in which users ask for runs whose data are items."""

    @override
    def placed(self, data: str) -> str:
        """Return data with an absolute path; tasks and built-in items keep their names."""
        from agent_forge.evaluation.data.items import absolute

        return absolute(data)


def plan(
    kind: AnyKind, request: RunRequest, lookup: Lookup, added: Added = lambda config, domains: ()
) -> Plan:
    """Return the plan of the run of one `model`. Without `domains`, those of the user's data.

    `added` says which domains of built-in text the run reads beside the user's own. Every domain that
    is measured has text in every slice.

    Raises ConfigError, DataError or UnavailableError before anything is started.
    """
    from agent_forge.evaluation.training_text import own_texts

    config, model = of_model(kind, request, lookup)
    data = tuple(map(training_texts.absolute, map(str, request.data)))
    there: Sequence[str] = KNOWN
    beside: Sequence[str] = ()
    if data:
        domains = training_texts.domains(data)
        beside = added(config, domains)
        there = (*domains, *beside)
        if "domains" not in request.config:
            config = kind.settings.parse({**request.config, "domains": there})
    training_texts.check_domains("domains names", config.domains, there, bool(data))
    training_texts.check_domains("mix weighs", tuple(config.mix or ()), there, bool(data))
    own_texts.check(config.seed, config.characters, beside if data else config.domains)
    return Plan(kind.name, config, {"model": model, "data": data}, request.output_dir)


def of_model(kind: AnyKind, request: RunRequest, lookup: Lookup) -> tuple[Any, ModelReference]:
    """Return (settings, the model) of a run of one `model`.

    Raises ConfigError or UnavailableError.
    """
    from agent_forge.weights.devices import check_device
    from agent_forge.weights.folders.sources import ALIASES, resolve

    unknown = sorted(role for role, models in request.models.items() if models and role != "model")
    if unknown:
        raise ConfigError(f"{kind.title} has no models {unknown[0]!r}: it has a model.")
    names = [str(model) for model in request.models.get("model", ())]
    if len(names) != 1:
        raise ConfigError(f"{kind.title} is of one model: --model model=MODEL.")
    config = kind.settings.parse(request.config)
    check_device(config.device, lookup.elsewhere)
    return config, resolve(names[0], {**ALIASES, **lookup.aliases}, lookup.named)


def opened(plan: Plan) -> Checkpoint:
    """Return the given model's checkpoint, header only. Raises SourceError, ConfigError."""
    from agent_forge.weights.folders import model_config
    from agent_forge.weights.folders.checkpoint import open_checkpoint

    folder = Path(plan.fields["model"].path)
    checkpoint = open_checkpoint(folder)
    checkpoint.check_plain("trained")
    model_config.check_predicts_tokens(folder, checkpoint.config)
    training_plan.window(plan.config, checkpoint.positions)
    return checkpoint


def trainable(config: Adapted, settings: Mapping[str, object]) -> int | None:
    """Return the number of parameters of the adapters for a model; None without adapters.

    `settings` is the model's config.json. Raises ConfigError for layers or a rank that it cannot have.
    """
    if config.train == "full":
        return None
    from agent_forge.weights.training.models import low_rank

    return low_rank.count(settings, config.lora_rank, config.lora_modules)


def checked(plan: Plan, checkpoint: Checkpoint) -> Checked:
    """Return warnings, parameters and documents; raise the errors that a start would raise."""
    from agent_forge.evaluation.training_text.kept_text import given_tokenizer

    given_tokenizer(Path(plan.fields["model"].path))
    if not plan.fields["data"]:
        return Checked(checkpoint.warnings, checkpoint.parameters)
    data_texts = training_texts.read(plan.fields["data"])
    counts = {
        domain: {slice_: len(texts) for slice_, texts in split.items()}
        for domain, split in data_texts.documents.items()
    }
    return Checked((*checkpoint.warnings, *data_texts.notes), checkpoint.parameters, counts)
