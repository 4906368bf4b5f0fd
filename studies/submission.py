"""Submission of a run of given models: settings, models and data, checked first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from typing_extensions import override

from agent_forge.evaluation.data import training_texts
from agent_forge.evaluation.data.slices import Slice
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.event_types import ModelReference
from agent_forge.runs.kinds.asked import CheckResult, Lookup, Plan, Requests, RunRequest, roles
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
        """Return True if `settings` are those of `config`; domains not given are those of `config`."""
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
    """Return the plan of a run of one `model` that trains. Without `domains`, those of the user's data.

    `added` says which domains of built-in text the run reads beside the user's own. Every domain that
    is measured has text in every slice.

    Raises ConfigError, DataError or UnavailableError before anything is started.
    """
    from agent_forge.evaluation.training_text import own_texts

    config, models = of_models(kind, request, lookup)
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
    fields = {**models, "model": models["model"][0], "data": data}
    return Plan(kind.name, config, fields, request.output_dir)


def plan_on_items(kind: AnyKind, request: RunRequest, lookup: Lookup) -> Plan:
    """Return the plan of a run of one `model`, and models of other roles, that is measured on items.

    Raises ConfigError or UnavailableError before anything is started.
    """
    config, models = of_models(kind, request, lookup)
    data = tuple(kind.requests.placed(str(place)) for place in request.data)
    return Plan(kind.name, config, {**models, "data": data}, request.output_dir)


def of_models(
    kind: AnyKind, request: RunRequest, lookup: Lookup
) -> tuple[Any, dict[str, tuple[ModelReference, ...]]]:
    """Return (settings, role → models) of a run of one `model`; all roles of its kind are there.

    Raises ConfigError or UnavailableError.
    """
    from agent_forge.weights.devices import check_device
    from agent_forge.weights.folders.sources import ALIASES, resolve

    names = {role: tuple(map(str, request.models.get(role, ()))) for role in roles(kind.submitted)}
    if unknown := sorted(role for role, group in request.models.items() if group and role not in names):
        there = ", ".join(names)
        raise ConfigError(f"{kind.title} has no models {unknown[0]!r}; the roles are: {there}.")
    if len(names["model"]) != 1:
        raise ConfigError(f"{kind.title} is of one model: --model model=MODEL.")
    config = kind.settings.parse(request.config)
    check_device(config.device, lookup.elsewhere)
    aliases = {**ALIASES, **lookup.aliases}
    every = dict.fromkeys(chain(*names.values()))  # each once: to find a model may take long
    models = {name: resolve(name, aliases, lookup.named) for name in every}
    return config, {role: tuple(models[name] for name in group) for role, group in names.items()}


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


def checked(plan: Plan, checkpoint: Checkpoint) -> CheckResult:
    """Return a CheckResult (warnings, parameters, document counts); raise the errors of a start."""
    from agent_forge.evaluation.training_text.kept_text import given_tokenizer

    given_tokenizer(Path(plan.fields["model"].path))
    if not plan.fields["data"]:
        return CheckResult(checkpoint.warnings, checkpoint.parameters)
    data_texts = training_texts.read(plan.fields["data"])
    counts = {
        domain: {slice_: len(texts) for slice_, texts in split.items()}
        for domain, split in data_texts.documents.items()
    }
    return CheckResult((*checkpoint.warnings, *data_texts.notes), checkpoint.parameters, counts)


def checked_on_items(plan: Plan, opened: Sequence[Checkpoint], needed: Sequence[Slice]) -> CheckResult:
    """Return the result of a check of models and items: warnings, parameters, document counts.

    Raises the errors that a start would raise for the items.
    """
    from agent_forge.evaluation.loading import load_items, texts_of

    notes = [warning for checkpoint in opened for warning in checkpoint.warnings]
    largest = max(checkpoint.parameters for checkpoint in opened)
    items = load_items(plan.fields["data"], parameters=largest, note=notes.append, needed=needed)
    counts: dict[str, dict[str, int]] = {}
    for on in needed:
        for domain, texts in texts_of(items, on).items():
            counts.setdefault(domain, {})[on] = len(texts)
    return CheckResult(tuple(notes), largest, counts)
