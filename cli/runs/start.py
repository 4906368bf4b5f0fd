"""`forge start`, `kinds` and `settings`: start a run of any kind; list the kinds and their settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click

from agent_forge.cli import options as files
from agent_forge.cli.options import (
    dry_run_option,
    emit,
    json_option,
    queue_options,
    set_option,
    setting,
    split,
    table,
)
from agent_forge.cli.runs.carry_on import begin, carry_on, resumed

if TYPE_CHECKING:
    from agent_forge.runs.home import Home
    from agent_forge.runs.kinds.asked import Plan
    from agent_forge.runs.kinds.kind import Kind

#: Command → kind, if their names differ.
KINDS = {"compress": "compression"}
#: The option of kinds that can train adapters.
LORA = click.Option(
    ["--lora", "rank"],
    type=click.IntRange(min=1),
    metavar="RANK",
    help="Train low-rank adapters of this rank, which are merged into the weights, instead of all "
    "weights.",
)
#: The model of examples of kinds that have none of their own.
EXAMPLE = "models/base"


@click.command("start")
@click.argument("kind", required=False)
@click.option("--config", "config_file", type=click.Path(), help="Settings, TOML, JSON or YAML.")
@set_option
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="ROLE=MODEL",
    help="A folder, Hub id, run or registered model; again for several.",
)
@click.option("--data", multiple=True, type=click.Path(), help="Files or folders of data.")
@click.option("--out", "--output-dir", "output_dir", type=click.Path(), help="Folder for the result.")
@click.option("--resume", metavar="RUN", help="Go on with a run of any kind after a crash or Ctrl-C.")
@click.option("--detach", is_flag=True, help="Only submit; another process carries the run on.")
@dry_run_option
@queue_options
@json_option
def start_command(
    kind: str | None,
    config_file: str | None,
    settings: tuple[str, ...],
    models: tuple[str, ...],
    data: tuple[str, ...],
    output_dir: str | None,
    resume: str | None,
    detach: bool,
    dry_run: bool,
    as_json: bool,
    **queued: object,
) -> None:
    """Start or submit a run of any KIND, from a config file and settings; or resume a run.

    `forge kinds` lists the kinds. For merging runs `forge evo` has options of their own. Progress
    goes to stderr, the result to stdout. Ctrl-C leaves a run that can be resumed.

    \b
    Example:
      forge start evomerge --config run.toml --set generations=8 \\
                  --model base=models/base --model sources=models/code --model sources=models/math
      forge start --resume 20261121-3fa9c1
    """
    from agent_forge.runs.home import Home

    if resume is not None:
        arguments = {
            "KIND": kind,
            "config": config_file,
            "set": settings,
            "model": models,
            "data": data,
        }
        rest = {"output_dir": output_dir, "detach": detach, "dry_run": dry_run, **queued}
        home = Home.default()
        run, output = resumed(home, resume, {**arguments, **rest})
        carry_on(home, run, output, as_json)
        return
    if kind is None:
        raise click.UsageError("give the KIND of a new run, or --resume RUN.")
    config, rest = dict(map(setting, settings)), (detach, dry_run, as_json)
    _start(kind, config, models, data, output_dir, config_file, *rest, **queued)


def _start(
    kind: str,
    config: Mapping[str, object],
    models: tuple[str, ...],
    data: tuple[str, ...],
    output_dir: str | None,
    config_file: str | None,
    detach: bool,
    dry_run: bool,
    as_json: bool,
    **queued: object,
) -> None:
    """Start a run of a kind, by its config file and `config`, which wins over the file."""
    from agent_forge.cli.runs.progress import lasting
    from agent_forge.runs.home import Home

    home, settings = Home.default(), {**files.read(config_file), **config}
    with lasting("checking models and data"):
        plan = planned(home, kind, settings, models, data, output_dir, detach)
    begin(home, plan, queued, detach, dry_run, as_json, config_file)


def command_of(word: str, line: str) -> click.Command:
    """Return the click command that starts runs of one kind; its help begins with `line`.

    The model of the kind's main role is an argument; its other roles, and settings that the kind
    offers, are options.
    """
    from agent_forge.runs import kinds
    from agent_forge.runs.kinds.asked import roles

    run_kind = kinds.of(kind := KINDS.get(word, word))
    role_names = roles(run_kind.submitted)
    main = run_kind.main_role if run_kind.main_role in role_names else None
    words = run_kind.command.words or line
    examples = run_kind.command.examples or (f"forge {word}{f' {EXAMPLE}' if main else ''} --out out",)
    text = (
        f"{words}\n\n`forge settings {kind}` lists the settings. After Ctrl-C or a crash `forge start "
        f"--resume RUN` goes on with the run; its name is printed first.\n\n\b\nExample:\n  "
        + "\n  ".join(examples)
    )
    params = [param for param in start_command.params if param.name not in ("kind", "resume")]
    settings = [name for name in run_kind.command.options if name not in role_names]
    if "lora_rank" in run_kind.config.model_fields:
        params.insert(0, LORA)
    params = [*(_setting_option(run_kind, name) for name in settings), *params]
    params = [*(_role_option(run_kind, name) for name in role_names if name != main), *params]
    if main:
        params.insert(0, click.Argument([main], required=False, metavar=main.upper()))
    return click.Command(word, params=params, help=text, callback=partial(_started, kind, main))


def _role_option(kind: Kind, name: str) -> click.Option:
    """Return the option of a role's models: `--student`, repeated for several, for students."""
    flag = kind.command.options.get(name, f"--{name.removesuffix('s').replace('_', '-')}")
    several = get_origin(kind.submitted.model_fields[name].annotation) is tuple
    words = f"A model of the role {name}{'; again for several' if several else ''}."
    return click.Option([flag, f"role_{name}"], metavar="MODEL", multiple=True, help=words)


def _setting_option(kind: Kind, name: str) -> click.Option:
    """Return the option of a setting that a kind offers: a flag, a choice, files, or a value."""
    field = kind.config.model_fields[name]
    flag, _, files = kind.command.options[name].partition(" ")
    numeric = {int, float} & {field.annotation, *get_args(field.annotation)}
    form: dict[str, Any] = {"metavar": "N" if numeric else "VALUE"}
    words = field.description or ""
    if field.annotation is bool:
        form = {"is_flag": True}
    elif get_origin(field.annotation) is Literal:
        form = {"type": click.Choice(get_args(field.annotation))}
    elif files:
        form = {"metavar": files, "multiple": True, "type": click.Path(path_type=Path)}
        words = f"A file; again for several. {words}"
    if field.default not in (None, (), False, ...) and not isinstance(field.default, tuple):
        words += f"  [default: {field.default}]"
    return click.Option([flag, f"setting_{name}"], help=words, **form)


def _started(word: str, main: str | None, **arguments: Any) -> None:
    """Start a run of a kind, by the arguments of its command. Raises UsageError, ConfigError."""
    from agent_forge.runs import kinds

    kind, models = kinds.of(word), list(arguments.pop("models"))
    model = arguments.pop(main) if main else None
    if model is not None:
        models.append(f"{main}={model}")
    elif main and not any(entry.startswith(f"{main}=") for entry in models):
        raise click.UsageError(f"give the {main}: a folder, Hub id, RUN or RUN:ROLE.")
    config: dict[str, object] = {}
    sets = dict(map(setting, arguments.pop("settings")))
    if (rank := arguments.pop("rank", None)) is not None:
        config |= {"train": "lora", "lora_rank": rank}
    for option in [option for option in arguments if option.startswith(("role_", "setting_"))]:
        sort, _, name = option.partition("_")
        value = arguments.pop(option)
        if sort == "role":
            models += [f"{name}={place}" for place in value]
        elif value is not None and value is not False and value != ():
            config |= _chosen(kind, name, value)
    # Prompt files without checks beside them give an empty list, which the user did not set.
    if twice := [name for name in sets if config.get(name, sets[name]) not in (sets[name], [])]:
        raise click.UsageError(f"--set {twice[0]} contradicts another option: leave one out.")
    _start(word, config | sets, tuple(models), **arguments)


def _chosen(kind: Kind, name: str, value: Any) -> dict[str, object]:
    """Return {name: value} of the settings that an option stands for. Raises ConfigError."""
    if " " in kind.command.options[name]:
        return kind.command.read(name, value)
    if value is True:
        return {name: True}
    listed = get_origin(kind.config.model_fields[name].annotation) is tuple
    return {name: split(value)} if listed else dict([setting(f"{name}={value}")])


def planned(
    home: Home,
    kind: str,
    config: dict[str, object],
    models: tuple[str, ...],
    data: tuple[str, ...],
    output_dir: str | None,
    elsewhere: bool,
) -> Plan:
    """Return the checked plan of a new run. Raises ConfigError, UnavailableError."""
    from agent_forge.runs.kinds.asked import Lookup, RunRequest
    from agent_forge.weights.storage.model_origin import Finder
    from agent_forge.worker.commands import submit

    roles: dict[str, list[str]] = {}
    for role, model in map(_role, models):
        roles.setdefault(role, []).append(model)
    named = Finder(home, lambda line: click.echo(line, err=True))
    request = RunRequest(kind, config, roles, data, output_dir)
    return submit.plan(request, Lookup({}, named, elsewhere=elsewhere))


def _role(text: str) -> tuple[str, str]:
    """Return (role, model) of ROLE=MODEL. Raises UsageError."""
    role, equals, model = text.partition("=")
    if role and equals and not model:
        raise click.UsageError(f"the name of the model {role} is empty.")
    if not role or not equals:
        raise click.UsageError(f"--model takes ROLE=MODEL, not {text!r}.")
    return role, model


@click.command("kinds")
@json_option
def kinds_command(as_json: bool) -> None:
    """List the kinds of run that this program knows.

    \b
    Example:
      forge kinds
    """
    from agent_forge.runs import kinds

    rows = [
        {"name": name, "line": kinds.of(name).line, "unit": kinds.of(name).unit}
        for name in sorted(kinds.table())
    ]
    if as_json:
        emit(rows)
        return
    table(["kind", "what it does", "counted in"], [list(row.values()) for row in rows])


@click.command("settings")
@click.argument("names", metavar="[KIND] [NAME]", nargs=-1)
@json_option
def settings_command(names: tuple[str, ...], as_json: bool) -> None:
    """List the settings of a KIND of run (evomerge by default); NAME: those that have this in the name.

    Settings go into the file that `--config` reads: TOML, JSON or YAML. If only some strategies have a
    setting of a merging run, its line names them; the file has it in the table `search`, or beside the
    others. A setting is also found by its other names (docs/documents.md).

    \b
    Example:
      forge settings search_
      forge settings cognate
      forge settings --json
    """
    from agent_forge.runs import kinds

    kind = names[0] if names and names[0] in kinds.table() else "evomerge"
    rest = names[1:] if names and names[0] in kinds.table() else names
    if len(rest) > 1:
        raise click.UsageError(f"give one NAME, not {len(rest)}.")
    name = rest[0] if rest else ""
    rows = kinds.of(kind).settings.options(name)
    if as_json:
        emit(rows)
        return
    table(
        ["setting", "strategies", "default", "what it is"],
        [
            [row["name"], ", ".join(row["strategies"]), _said(row["default"]), row["what"]]
            for row in rows
        ],
    )


def _said(value: object) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value)
