"""Validation of what a run is submitted with, from plain values to opened models and counted items.

Terminal and API both use this module, so that both refuse the same input with the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evomerge import config as settings
from evomerge.config import EvoMergeConfig
from evomerge.run.events import ModelReference
from runs.errors import ConfigError


@dataclass(frozen=True)
class Plan:
    """Everything that a run is submitted with."""

    config: EvoMergeConfig
    sources: tuple[ModelReference, ...]
    base: ModelReference | None
    data: tuple[str, ...]
    output_dir: str | None


def make(
    given: Mapping[str, Any],
    models: Sequence[Any],
    base: str | None,
    data: Sequence[str],
    output_dir: str | None = None,
    aliases: Mapping[str, str] | None = None,
    elsewhere: bool = False,
    named: Callable[[str], ModelReference | None] | None = None,
) -> Plan:
    """Return the plan of a run with these settings; of the models only headers are read.

    The device may be missing on this machine if the run is carried `elsewhere`. `named` finds
    models by names from the log, see `worker.exports.model_origin`.

    Raises ConfigError or UnavailableError before anything is started.
    """
    from evomerge import search
    from evomerge.data_settings import given as given_data
    from weights.sources import ALIASES, resolve

    config = settings.parse(dict(given))
    search.current(config)
    known = {**ALIASES, **(aliases or {})}
    made = Plan(
        config=config,
        sources=tuple(resolve(m, known, named) for m in _named(models)),
        base=resolve(base, known, named) if base else None,
        data=given_data(data, config.fitness_weights),
        output_dir=output_dir,
    )
    check_device(config.device, elsewhere)
    return made


def _named(entries: Sequence[Any]) -> list[str]:
    """Return the models of a config file as strings.

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


def check_device(device: str, elsewhere: bool = False) -> None:
    """Raise ConfigError if the device is not known, UnavailableError if this machine lacks it."""
    from runs.errors import UnavailableError

    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ConfigError(f"device {device!r} is not known: use cpu or cuda:N.")
    if kind == "cuda" and not elsewhere:
        import torch

        index = int(device.partition(":")[2] or 0)
        if index >= torch.cuda.device_count():
            raise UnavailableError(
                f"device {device} is not there ({torch.cuda.device_count()} CUDA devices). "
                "Use --device cpu."
            )


@dataclass(frozen=True)
class Checked:
    """The result of a check: warnings, the base's parameters, items by domain and slice."""

    warnings: tuple[str, ...]
    parameters: int
    items: dict[str, dict[str, int]]


def check(plan: Plan) -> Checked:
    """Open models (headers only), tokenizer and data; raise the errors that a run would raise."""
    from evaluation.data.packing import pack
    from evaluation.item_filter import measurable, why_not_run
    from evaluation.loading import load_items, load_tokenizer, made_for_any_model
    from evaluation.verifiers.verifier import Verifier
    from evomerge.data_settings import check_settings
    from evomerge.merging.dataflow import check_paths
    from weights import model_config
    from weights.sources import open_family

    family = open_family(plan.sources, plan.base, plan.config.strict)
    model_config.empty(family.base.folder, model_config.load(family.base.folder))
    tokenizer = load_tokenizer(str(family.base.folder))
    notes: list[str] = []
    allowed, parameters = plan.config.allow_benchmarks, family.base.parameters
    items = load_items(plan.data, allowed, parameters, notes.append)
    context = min(plan.config.context, family.base.positions or plan.config.context)
    builtin, not_run = made_for_any_model(plan.data), why_not_run(items, Verifier())
    items, told = measurable(items, tokenizer, context, builtin, not_run)
    check_settings(items, plan.config)
    check_paths(family, plan.config)
    pack(items, tokenizer, context)
    counts: dict[str, dict[str, int]] = {}
    for item in items:
        row = counts.setdefault(
            item.domain, dict.fromkeys(("train", "search", "selection", "test"), 0)
        )
        row[item.slice] += 1
    return Checked(
        (*family.warnings, *notes, *told),
        family.base.parameters,
        counts,
    )
