"""`forge start`: a run of any kind, from a config file and settings."""

from __future__ import annotations

from typing import Any

import click

from cli.options import emit, json_option, queue_options, setting
from cli.runs.carry_on import carry_on, recorded, resumed


@click.command("start")
@click.argument("kind")
@click.option("--config", "config_file", type=click.Path(), help="Settings, TOML, JSON or YAML.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting.")
@click.option("--model", "models", multiple=True, metavar="ROLE=MODEL",
              help="A folder, Hub id, run or registered model; again for several.")  # fmt: skip
@click.option("--data", multiple=True, type=click.Path(), help="Files or folders of data.")
@click.option("--output-dir", type=click.Path(), help="Folder for the result.")
@click.option("--detach", is_flag=True, help="Only submit; another process carries the run on.")
@queue_options
@json_option
def start_command(
    kind: str,
    config_file: str | None,
    settings: tuple[str, ...],
    models: tuple[str, ...],
    data: tuple[str, ...],
    output_dir: str | None,
    detach: bool,
    as_json: bool,
    **queued: Any,
) -> None:
    """Start or submit a run of any KIND, from a config file and settings.

    For merging runs `forge evo` has options of their own. Progress goes to stderr, the result to
    stdout. After Ctrl-C `forge evo --resume RUN` goes on with the run, of any kind.

    \b
    Example:
      forge start evomerge --config run.toml --set generations=8 \\
                  --model base=models/base --model sources=models/code --model sources=models/math
    """
    from cli import config_file as files
    from runs.home import Home
    from runs.kinds.asked import Asked, Lookup
    from worker.commands import validate
    from worker.exports.model_origin import finder

    home = Home.default()
    roles: dict[str, list[str]] = {}
    for role, model in map(_role, models):
        roles.setdefault(role, []).append(model)
    config = {**files.read(config_file), **dict(map(setting, settings))}
    named = finder(home, lambda told: click.echo(told, err=True))
    plan = validate.plan(
        Asked(kind, config, roles, data, output_dir), Lookup({}, named, elsewhere=detach)
    )
    run = recorded(home, plan, queued)
    if detach:
        emit({"run": run}) if as_json else click.echo(f"run {run} submitted")
        return
    run, output = resumed(home, run, {})
    click.echo(
        f"run {run} (go on with it after an interruption: forge evo --resume {run})", err=True
    )
    carry_on(home, run, output, as_json)


def _role(text: str) -> tuple[str, str]:
    """Return the role and the model of ROLE=MODEL."""
    role, equals, model = text.partition("=")
    if not role or not equals or not model:
        raise click.UsageError(f"--model takes ROLE=MODEL, not {text!r}.")
    return role, model
