"""From options and a config file to a checked plan: what `forge evo` starts and `forge check` shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cli import config_file
from cli.options import setting, split
from evomerge.config import RENAMED
from runs.errors import ConfigError
from runs.home import Home
from runs.kinds.asked import Asked, Lookup, Plan
from weights.folders.sources import ALIASES
from weights.storage.model_origin import Finder
from worker.commands import validate
from worker.commands.validate import check

__all__ = ["Plan", "check", "make", "read_file"]

#: Keys of a config file that name models and data rather than settings.
ABOUT_MODELS = ("base_models", "base_model", "data", "output_dir")


def read_file(path: str | None) -> dict[str, Any]:
    """Return a config file's content, or that of a genome file of mergekit-evolve.

    Raises ConfigError.
    """
    data = config_file.read(path)
    if path is not None and "genome" in data:
        from cli.evomerge import mergekit_evolve

        data, warnings = mergekit_evolve.read(data, str(Path(path)))
        for warning in warnings:
            click.echo(f"warning: {warning}", err=True)
    return data


def make(options: Mapping[str, Any], elsewhere: bool = False) -> Plan:
    """Make the plan that options and config file ask for; see `worker.commands.validate.plan`.

    Raises ConfigError if no model is named.
    """
    file = read_file(options.get("config_file"))
    about = {key: file.pop(key) for key in ABOUT_MODELS if key in file}
    flags = {
        "generations": options.get("gens"),
        "budget_hours": options.get("budget"),
        "seed": options.get("seed"),
        "strategy": options.get("strategy"),
        "device": options.get("device"),
        "strict": options.get("strict") or None,
    }
    chosen = {name: value for name, value in flags.items() if value is not None}
    settings = dict(map(setting, options.get("settings") or ()))
    if twice := sorted({RENAMED.get(name, name) for name in settings} & set(chosen)):
        raise ConfigError(f"--set {twice[0]} has an option of its own, too: leave one of both out.")
    chosen |= settings
    file = _without(file, chosen)
    if isinstance(file.get("search"), dict):
        file["search"] = _without(file["search"], chosen)
    base = options.get("base_model") or about.get("base_model")
    sources = split(options.get("base_models")) or about.get("base_models", [])
    if not sources and not base:
        raise ConfigError(
            "no models are given: --base-models A,B,C --base-model BASE, each a folder, a Hub id or a "
            "model of a run; or `forge init` in the folder of your models, then --config run.toml. "
            f"The names {', '.join(ALIASES)} stand for models of the Hub, about 9 GB together."
        )
    request = Asked(
        "evomerge",
        {**file, **chosen},
        {
            "sources": sources,
            "base": [base] if base else [],
        },
        options.get("data") or about.get("data") or (),
        options.get("output_dir") or about.get("output_dir"),
    )
    named = Finder(Home.default(), lambda line: click.echo(line, err=True))
    return validate.plan(request, Lookup({}, named, elsewhere))


def _without(file: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's settings without those that options give, under whichever of their names."""
    meant = {RENAMED.get(name, name) for name in chosen}
    return {name: value for name, value in file.items() if RENAMED.get(name, name) not in meant}
