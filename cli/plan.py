"""From options and a config file to a checked plan: what `forge evo` starts and `forge check` shows."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cli.options import split
from evomerge import config as settings
from evomerge.config import EvoMergeConfig
from evomerge.errors import ConfigError
from evomerge.facts import ModelReference

#: Keys of a config file that name models and data rather than settings.
ABOUT_MODELS = ("base_models", "base_model", "data", "output_dir", "aliases")


@dataclass(frozen=True)
class Plan:
    """Everything that a run is submitted with."""

    config: EvoMergeConfig
    sources: tuple[ModelReference, ...]
    base: ModelReference | None
    data: tuple[str, ...]
    output_dir: str | None


def read_file(path: str | None) -> dict[str, Any]:
    """A config file, JSON, TOML or YAML; or a genome file of mergekit-evolve. Raises ConfigError."""
    if path is None:
        return {}
    file = Path(path)
    try:
        data = _parsed(file.suffix, file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"config file {file} cannot be read: {error}") from error
    except ValueError as error:
        raise ConfigError(f"config file {file} is not valid: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"config file {file} must hold one object of settings.")
    if "genome" in data:
        from cli import genome

        data, warnings = genome.read(data, str(file))
        for warning in warnings:
            click.echo(f"warning: {warning}", err=True)
    return data


def _parsed(suffix: str, text: str) -> Any:
    """The content of a file. Raises ValueError."""
    if suffix in (".yml", ".yaml"):
        import yaml

        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(str(error)) from error
    return json.loads(text) if suffix == ".json" else tomllib.loads(text)


def make(options: Mapping[str, Any], elsewhere: bool = False) -> Plan:
    """The plan that options and config file ask for; models are opened, headers only.

    The device need not be on this machine for a run that is carried `elsewhere`.

    Raises ConfigError or UnavailableError before anything is started.
    """
    from evomerge import search
    from evomerge.fitness.data import given as given_data
    from evomerge.sources import ALIASES, resolve

    file = read_file(options.get("config_file"))
    about = {key: file.pop(key) for key in ABOUT_MODELS if key in file}
    given = {
        "generations": options.get("gens"),
        "seed": options.get("seed"),
        "strategy": options.get("strategy"),
        "device": options.get("device"),
        "strict": options.get("strict") or None,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    if chosen.get("generations") is not None:
        file.pop("max_generations", None)
    config = settings.parse({**file, **chosen})
    search.current(config)
    aliases = {**ALIASES, **about.get("aliases", {})}
    models = split(options.get("base_models")) or _named(about.get("base_models", []))
    base = options.get("base_model") or about.get("base_model")
    data = options.get("data") or about.get("data") or ()
    plan = Plan(
        config=config,
        sources=tuple(resolve(m, aliases) for m in models),
        base=resolve(base, aliases) if base else None,
        data=given_data(data, config.fitness_weights),
        output_dir=options.get("output_dir") or about.get("output_dir"),
    )
    check_device(config.device, elsewhere)
    return plan


def _named(entries: Sequence[Any]) -> list[str]:
    """Models of a config file: strings, or the source documents' {name, path, …}."""
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
    """Raise ConfigError or UnavailableError where the device is not usable, or not a device."""
    from evomerge.errors import UnavailableError

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
    """What a check found."""

    warnings: tuple[str, ...]
    parameters: int
    items: dict[str, dict[str, int]]


def check(plan: Plan) -> Checked:
    """Open models (headers), tokenizer and data; raise what a run would stumble over."""
    from evomerge import search
    from evomerge.corpus import domains
    from evomerge.fitness.data import check_settings
    from evomerge.fitness.packing import pack
    from evomerge.sources import open_family
    from evomerge.verifiers.checks import Verifier
    from worker.bench import check_paths, load_items, load_tokenizer
    from worker.measurable import measurable, why_not_run

    family = open_family(plan.sources, plan.base, plan.config.strict)
    tokenizer = load_tokenizer(str(family.base.folder))
    items = load_items(plan.data, plan.config.allow_benchmarks)
    context = min(plan.config.context, family.base.positions or plan.config.context)
    builtin, not_run = domains.NAME in plan.data, why_not_run(items, Verifier())
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
        search.unread(plan.config) + family.warnings + told, family.base.parameters, counts
    )
