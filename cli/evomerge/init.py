"""`forge init`: a config file to start a merging run from. No torch."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from agent_forge.cli.options import Json, emit, json_option, say, split

#: Groups of settings that the file has, all but `SKIPPED`; `forge settings` lists the others.
COMMON = ("Run", "Budgets", "Data", "Fitness", "Search")
#: Settings that stand at the top of the file, and one that is refused without another.
SKIPPED = ("strategy", "generations", "budget_hours", "path_blocks")
#: Setting that is unset by default → a value to show.
EXAMPLES: dict[str, object] = {
    "budget_hours": "1h",
    "max_hours": 8.0,
    "max_device_hours": 8.0,
    "max_evaluations": 1000,
    "max_items": 100_000,
}
#: Folders that are searched for models; the first that has two sources is taken.
PLACES = (".", "models")
#: Names of the folders of the base and of the data beside the models, as `forge cognate` has them.
BASE, ITEMS = "base", "items"
#: Columns of a comment.
WIDTH = 100


@dataclass(frozen=True)
class Inputs:
    """Models and data that a file names, as a user would type them."""

    sources: tuple[str, ...] = ()
    base: str | None = None
    data: tuple[str, ...] = ()


@click.command("init")
@click.argument("file", default="run.toml", type=click.Path())
@click.option("--base-models", metavar="A,B,C", help="The models to merge.")
@click.option("--base-model", metavar="M", help="Their common ancestor.")
@click.option("--data", multiple=True, type=click.Path(), help="Items to measure on.")
@click.option("--strategy", default="auto", help="Search strategy (default auto).")
@json_option
def init_command(
    file: str,
    base_models: str | None,
    base_model: str | None,
    data: tuple[str, ...],
    strategy: str,
    as_json: bool,
) -> None:
    """Write a config file to start from: FILE (default run.toml). No file is overwritten.

    It names models, data, strategy and generations, and has the common settings as comments, each
    with its default and what it is. Without --base-models, models are looked for in this folder and
    in `models`: folders with config.json and safetensors files. `base` is the base, `items` the data.

    \b
    Example:
      forge init
      forge init night.toml --base-models models/code,models/math --base-model models/base
    """
    from agent_forge.runs.errors import ConfigError
    from agent_forge.runs.system.plain_text import check

    inputs = _inputs(Inputs(tuple(split(base_models)), base_model, data))
    for text in (*inputs.sources, inputs.base or "", *inputs.data):
        check(text, "the name of a model or of data")
    place = Path(file)
    if place.suffix.lower() in (".json", ".yml", ".yaml"):
        raise ConfigError(f"{file} would not be read as TOML: give a name that ends in .toml.")
    text = content(inputs, strategy)
    try:
        with place.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError as error:
        raise ConfigError(f"{file} exists already, and is left as it is. Name another.") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be written: {error}. Name another.") from error
    if as_json:
        named = {"base_models": inputs.sources, "base_model": inputs.base, "data": inputs.data}
        emit({"file": file, **named, "next": following(file)})
        return
    for line in told(file, inputs):
        say(line)


def told(file: str, inputs: Inputs) -> list[str]:
    """Return lines for a terminal: the file, its models and data, and the next two commands."""
    from agent_forge.evomerge.data_settings import SCORED_ON

    check, evo = following(file)
    models = ", ".join(inputs.sources) or "none found: fill in base_models"
    return [
        f"wrote     {file}",
        f"models    {models}",
        f"base      {inputs.base or 'none: the first model is the base'}",
        f"data      {', '.join(inputs.data) or f'none: {SCORED_ON}'}",
        f"next      {check}",
        f"          {evo}",
    ]


def following(file: str) -> list[str]:
    """Return a list of the next two commands as texts: check the file, start its run."""
    name = shlex.quote(file)
    return [f"forge check --config {name}", f"forge evo --config {name}"]


def content(inputs: Inputs, strategy: str) -> str:
    """Return the text of the file: settings, the common ones commented out (`#name = value`).

    Raises ConfigError for an unknown strategy.
    """
    from agent_forge.evomerge import config, search
    from agent_forge.evomerge.settings_table import settings

    search.current(config.parse({"strategy": strategy}))
    table = {setting.name: setting for setting in settings()}
    lines = [
        "# A run of EvoMerge, for `forge check` and `forge evo --config`. A setting after # has its",
        "# default: remove the # to change it. Paths begin where `forge` is called.",
        "",
        *_models(inputs),
        "",
        *_about("strategy", table),
        f"strategy = {_toml(strategy)}",
        *_about("generations", table),
        f"generations = {_toml(table['generations'].default)}",
        "# Or, instead of generations:",
        *_about("budget_hours", table),
        f"#budget_hours = {_toml(EXAMPLES['budget_hours'])}",
    ]
    for group in COMMON:
        lines += ["", f"# ---- {group}"]
        for setting in table.values():
            other = setting.strategies and strategy not in setting.strategies
            if setting.group == group and setting.name not in SKIPPED and not other:
                value = EXAMPLES[setting.name] if setting.default is None else setting.default
                lines += [*_about(setting.name, table), f"#{setting.name} = {_toml(value)}"]
    return "\n".join([*lines, "", "# `forge settings` lists all settings.", ""])


def _models(inputs: Inputs) -> Iterator[str]:
    """Yield the lines that name models and data; missing ones are commented examples."""
    from agent_forge.weights.folders.sources import ALIASES

    aliases = ", ".join(sorted(ALIASES))
    yield f"# Models to merge: folders, GGUF files, Hub ids (owner/name), aliases ({aliases}), runs."
    shown = inputs.sources or ("models/code", "models/math")
    yield f"{'' if inputs.sources else '#'}base_models = {_toml(shown)}"
    yield "# Their common ancestor; without it, the first model is the base."
    yield f"{'' if inputs.base else '#'}base_model = {_toml(inputs.base or 'models/base')}"
    yield "# Items to measure on: files or folders of them; without it, Python code,"
    yield "# arithmetic and tables, which may not be what the models are for (docs/fitness.md)."
    yield f"{'' if inputs.data else '#'}data = {_toml(inputs.data or ('models/items',))}"


def _about(name: str, table: Json) -> list[str]:
    """Return the first sentence of a setting's description as comment lines."""
    words = table[name].description.partition(". ")[0].rstrip(".")
    unset = " (default: unset)" if table[name].default is None else ""
    return textwrap.wrap(f"{words}{unset}.", WIDTH, initial_indent="# ", subsequent_indent="# ")


def _toml(value: object) -> str:
    """Return a setting's value as TOML; a mapping becomes an inline table."""
    if isinstance(value, dict):
        inner = ", ".join(f"{name} = {_toml(part)}" for name, part in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _inputs(inputs: Inputs) -> Inputs:
    """Return `inputs`; if they name no sources, with the models and data found in a folder here."""
    if inputs.sources:
        return inputs
    for place in PLACES:
        models = [name for name in _folders(place) if _is_model(Path(name))]
        named = [name for name in models if Path(name).name == BASE]
        base = inputs.base or next(iter(named), None)
        sources = [name for name in models if name not in named and not _same(name, inputs.base)]
        if len(sources) >= 2:
            items = f"{place}/{ITEMS}"
            data = inputs.data or ((items,) if any(Path(items).glob("*.jsonl")) else ())
            return Inputs(tuple(sources), base, data)
    return inputs


def _folders(place: str) -> list[str]:
    """Return the paths of a place's folders as texts, sorted, none hidden; [] if it is unreadable."""
    try:
        names = sorted(entry.name for entry in Path(place).iterdir() if entry.is_dir())
    except OSError:
        return []
    return [f"{place}/{name}" for name in names if name.isprintable() and name[:1] != "."]


def _is_model(folder: Path) -> bool:
    """Return True if the folder has config.json and safetensors files."""
    try:
        return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))
    except OSError:
        return False


def _same(name: str, other: str | None) -> bool:
    return other is not None and Path(name).resolve() == Path(other).resolve()
