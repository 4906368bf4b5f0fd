"""`forge start`: a run of any kind, from a config file and settings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from cli import config_file as files
from cli.options import dry_run_option, json_option, queue_options, set_option, setting
from cli.runs.carry_on import begin, carry_on, resumed

if TYPE_CHECKING:
    from runs.home import Home
    from runs.kinds.asked import Plan

#: Command → kind, where people say another word.
KINDS = {"compress": "compression"}
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
@click.option(
    "--out", "--output-dir", "output_dir", type=click.Path(), help="Folder for the result."
)
@click.option(
    "--resume", metavar="RUN", help="Go on with a run of any kind after a crash or Ctrl-C."
)
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
    **queued: Any,
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
    from runs.home import Home

    home = Home.default()
    if resume is not None:
        given = {
            "KIND": kind,
            "config": config_file,
            "set": settings,
            "model": models,
            "data": data,
        }
        rest = {"output_dir": output_dir, "detach": detach, "dry_run": dry_run, **queued}
        run, output = resumed(home, resume, {**given, **rest})
        carry_on(home, run, output, as_json)
        return
    if kind is None:
        raise click.UsageError("give the KIND of a new run, or --resume RUN.")
    config = {**files.read(config_file), **dict(map(setting, settings))}
    plan = planned(home, kind, config, models, data, output_dir, detach)
    begin(home, plan, queued, detach, dry_run, as_json, config_file=config_file)


def command_of(word: str, line: str) -> click.Command:
    """Return the command that starts runs of one kind; `line` says what it does.

    The model of the kind's main role stands without a role; its other roles, and settings that the kind
    offers, are options.
    """
    from runs import kinds
    from runs.kinds.asked import roles

    run_kind = kinds.of(kind := KINDS.get(word, word))
    others = roles(run_kind.submitted)
    main = run_kind.main_role if run_kind.main_role in others else None
    words = run_kind.command_words or line
    examples = run_kind.examples or (f"forge {word}{f' {EXAMPLE}' if main else ''} --out out",)
    text = (
        f"{words}\n\n`forge settings {kind}` lists the settings. After Ctrl-C or a crash `forge start "
        f"--resume RUN` goes on with the run; its name is printed first.\n\n\b\nExample:\n  "
        + "\n  ".join(examples)
    )
    params = [param for param in start_command.params if param.name not in ("kind", "resume")]
    params = [*(_option(run_kind.config, name) for name in run_kind.offered), *params]
    params = [*(_role_option(name) for name in others if name != main), *params]
    if main:
        params.insert(0, click.Argument([main], required=False, metavar=main.upper()))
    return click.Command(word, params=params, help=text, callback=partial(_started, kind, main))


def _role_option(name: str) -> click.Option:
    """Return the option of a role's models: `--student`, again for several, of the role students."""
    flag = f"--{name.removesuffix('s').replace('_', '-')}"
    words = f"A model of the role {name}; again for several."
    return click.Option([flag, f"role_{name}"], metavar="MODEL", multiple=True, help=words)


def _option(config: Any, name: str) -> click.Option:
    """Return the option of a setting that a kind offers, as `--rate`."""
    field = config.model_fields[name]
    flag = f"--{name.replace('_', '-')}"
    return click.Option([flag, f"setting_{name}"], metavar="VALUE", help=field.description)


def _started(kind: str, main: str | None, **given: Any) -> None:
    """Start a run of a kind, from the arguments of its command."""
    model = given.pop(main, None) if main else None
    if main and model is None and not any(one.startswith(f"{main}=") for one in given["models"]):
        raise click.UsageError(f"give the {main}: a folder, Hub id, RUN or RUN:ROLE.")
    models = (f"{main}={model}", *given["models"]) if model is not None else given["models"]
    for role in [name for name in given if name.startswith("role_")]:
        models += tuple(f"{role.removeprefix('role_')}={one}" for one in given.pop(role))
    chosen = {n: given.pop(n) for n in list(given) if n.startswith("setting_")}
    sets = [f"{n.removeprefix('setting_')}={v}" for n, v in chosen.items() if v is not None]
    settings = (*sets, *given["settings"])
    assert start_command.callback is not None
    start_command.callback(
        kind=kind, resume=None, **{**given, "models": models, "settings": settings}
    )


def planned(
    home: Home,
    kind: str,
    config: dict[str, Any],
    models: tuple[str, ...],
    data: tuple[str, ...],
    output_dir: str | None,
    elsewhere: bool,
) -> Plan:
    """Return the plan of a new run, checked. Raises ConfigError, UnavailableError."""
    from runs.kinds.asked import Asked, Lookup
    from weights.storage.model_origin import Finder
    from worker.commands import validate

    roles: dict[str, list[str]] = {}
    for role, model in map(_role, models):
        roles.setdefault(role, []).append(model)
    named = Finder(home, lambda told: click.echo(told, err=True))
    asked = Asked(kind, config, roles, data, output_dir)
    return validate.plan(asked, Lookup({}, named, elsewhere=elsewhere))


def _role(text: str) -> tuple[str, str]:
    """Return the role and the model of ROLE=MODEL."""
    role, equals, model = text.partition("=")
    if role and equals and not model:
        raise click.UsageError(f"the name of the model {role} is empty.")
    if not role or not equals:
        raise click.UsageError(f"--model takes ROLE=MODEL, not {text!r}.")
    return role, model
