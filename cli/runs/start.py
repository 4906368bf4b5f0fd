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

#: Models of the examples, by the order of a kind's roles.
EXAMPLES = ("models/math", "models/base")


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
@click.option("--output-dir", type=click.Path(), help="Folder for the result.")
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


def of_kind(kind: str, line: str) -> click.Command:
    """Return the command that starts runs of one kind under its name; `line` says what it does."""
    from runs import kinds
    from runs.kinds.asked import roles

    given = [role for role in roles(kinds.of(kind).submitted) if role in ("model", "against")]
    models = " ".join(f"--model {role}={path}" for role, path in zip(given, EXAMPLES, strict=False))
    text = (
        f"{line} The same as `forge start {kind}`; `forge settings {kind}` lists the settings.\n\n"
        f"\b\nExample:\n  forge {kind} {models} --output-dir out"
    )
    own = [param for param in start_command.params if param.name not in ("kind", "resume")]
    return click.Command(
        kind,
        params=own,
        help=text,
        callback=partial(start_command.callback, kind=kind, resume=None),  # pyright: ignore
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
