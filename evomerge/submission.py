"""Submission of a merging run: from what a user asks for to opened models and counted items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agent_forge.evomerge import config as document_settings
from agent_forge.evomerge import config as settings
from agent_forge.evomerge.config import EvoMergeConfig
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.event_types import ModelReference
from agent_forge.runs.kinds.asked import CheckResult, Lookup, Plan, RunRequest


def planned(
    config: EvoMergeConfig,
    sources: tuple[ModelReference, ...],
    base: ModelReference | None,
    data: tuple[str, ...],
    output_dir: str | None = None,
) -> Plan:
    """Return the plan of a merging run from parsed settings and resolved models."""
    return Plan("evomerge", config, {"sources": sources, "base": base, "data": data}, output_dir)


def plan(request: RunRequest, lookup: Lookup) -> Plan:
    """Return the plan of a requested run; of models only headers are read.

    `models` has the roles `sources` and `base`. Raises ConfigError, UnavailableError.
    """
    from agent_forge.evomerge import search
    from agent_forge.evomerge.data_settings import given as given_data
    from agent_forge.weights.folders.sources import ALIASES, resolve, resolve_source

    own_settings, left = document_settings.translated(request.config)
    config = settings.parse(own_settings)
    if config.strict:
        document_settings.refuse(left)
    search.current(config)
    unknown = sorted(set(request.models) - {"sources", "base"})
    if unknown:
        raise ConfigError(f"a merging run has no models {unknown[0]!r}: give sources and a base.")
    base = list(request.models.get("base", ()))
    if len(base) > 1:
        raise ConfigError("a merging run has one base. Give one.")
    aliases = {**ALIASES, **lookup.aliases}
    named = _model_names(request.models.get("sources", ()))
    sources = [resolve_source(model, aliases, lookup.named) for model in named]
    run_plan = planned(
        config,
        _with_distinct_names(sources),
        _base(sources, resolve(str(base[0]), aliases, lookup.named) if base else None),
        given_data(request.data, config.fitness_weights),
        request.output_dir,
    )
    return replace(run_plan, warnings=document_settings.warnings(left))


def _base(sources: Sequence[ModelReference], base: ModelReference | None) -> ModelReference | None:
    """Return the base or None; for sources BASE+ADAPTER their own, also if no base is given.

    Raises ConfigError for adapters of several bases, or of another base than the given one.
    """
    from agent_forge.weights.folders import adapter_folders

    pairs = [(model, *adapter_folders.parts(Path(model.path))) for model in sources]
    bases = {folder: model for model, folder, adapter in pairs if adapter is not None}
    if base is None and len(bases) == 1:
        ((folder, model),) = bases.items()
        return ModelReference(name=model.name.partition("+")[0], path=str(folder))
    if other := next((folder for folder in bases if base is None or str(folder) != base.path), None):
        against = "each other" if base is None else f"the base {base.path}"
        raise ConfigError(
            f"source {bases[other].name} is an adapter of {other}, which is not that of {against}: a "
            "merging run takes adapters of its base. Give adapters of one base, or merge an adapter of "
            "another into a whole model first, by a config of `forge merge`."
        )
    return base


def _with_distinct_names(models: Sequence[ModelReference]) -> tuple[ModelReference, ...]:
    """Return the models; those of other runs that share a name get their digest behind it."""
    names = [model.name for model in models]
    return tuple(
        model.model_copy(update={"name": f"{model.name}-{model.digest[:6]}"})
        if model.digest and names.count(model.name) > 1
        else model
        for model in models
    )


def _model_names(entries: Sequence[object]) -> list[str]:
    """Return the names or paths of the models in a config file.

    An entry is a string, or a {name, path, …} of the source documents. Raises ConfigError.
    """
    result = []
    for entry in entries:
        if isinstance(entry, dict):
            unknown = set(entry) - {"name", "path", "weight", "domain_specialty"}
            if unknown or "path" not in entry:
                raise ConfigError(f"base_models entry {entry} needs `path` and may have `name`.")
            if entry.get("weight", 1.0) != 1.0:
                raise ConfigError(
                    "a source's `weight` is a gene of the recipe and is searched: leave it out."
                )
            result.append(str(entry["path"]))
        else:
            result.append(str(entry))
    return result


def check(plan: Plan) -> CheckResult:
    """Return a `CheckResult`: warnings, parameters, item counts of models. Raise a run's errors."""
    from agent_forge.evaluation.data.packing import pack
    from agent_forge.evaluation.evaluate import measurable, why_not_run
    from agent_forge.evaluation.loading import load_items, load_tokenizer, made_for_any_model
    from agent_forge.evaluation.verifiers.verifier import Verifier
    from agent_forge.evomerge.data_settings import SCORED_ON, check_settings
    from agent_forge.evomerge.merging.dataflow import check_paths
    from agent_forge.evomerge.tasks import merge
    from agent_forge.weights.folders.sources import open_family

    data = plan.fields["data"]
    family = open_family(plan.fields["sources"], plan.fields["base"], plan.config.strict)
    models = [plan.fields["base"] or plan.fields["sources"][0], *plan.fields["sources"]]
    folders = [opened_model.folder for opened_model in (family.base, *family.sources)]
    names = [model.name for model in models]
    strange = merge.other_tokens(names, folders, plan.config.strict)
    strange += merge.strange(models, folders)
    strange += merge.left_behind(models, folders)
    tokenizer = load_tokenizer(str(family.base.folder))
    notes: list[str] = [] if data else [f"no data: {SCORED_ON}."]
    allowed, parameters = plan.config.allow_benchmarks, family.base.parameters
    items = load_items(data, allowed, parameters, notes.append)
    context = min(plan.config.context, family.base.positions or plan.config.context)
    builtin, not_run = made_for_any_model(data), why_not_run(items, Verifier())
    items, remarks = measurable(items, tokenizer, context, builtin, not_run)
    check_settings(items, plan.config)
    check_paths(family, plan.config)
    pack(items, tokenizer, context)
    counts: dict[str, dict[str, int]] = {}
    for item in items:
        row = counts.setdefault(item.domain, dict.fromkeys(("train", "search", "selection", "test"), 0))
        row[item.slice] += 1
    return CheckResult(
        (*plan.warnings, *family.warnings, *strange, *notes, *remarks), family.base.parameters, counts
    )
