"""`forge compress`."""

from __future__ import annotations

from typing import Any

import click

from cli.options import dry_run_option, json_option, queue_options, set_option, setting


@click.command("compress")
@click.argument("model")
@click.option(
    "--out", required=True, type=click.Path(), help="The folder for the file and its card."
)
@click.option(
    "--budget",
    metavar="SIZE",
    help="Bytes that the file may take, its tokenizer left out: 300kB, 2MB, 1.5GiB.",
)
@click.option(
    "--retention",
    type=click.FloatRange(0.0, 1.0, min_open=True),
    help="Share of quality to keep in the smallest file, if there is no --budget (default 0.95).",
)
@click.option(
    "--student",
    "students",
    multiple=True,
    metavar="MODEL",
    help="A smaller model with the same tokenizer: its points stand on the same front.",
)
@click.option("--data", multiple=True, type=click.Path(), help="Files or folders of items.")
@set_option
@click.option("--detach", is_flag=True, help="Only submit; another process carries the run on.")
@dry_run_option
@queue_options
@json_option
def compress_command(
    model: str,
    out: str,
    budget: str | None,
    retention: float | None,
    students: tuple[str, ...],
    data: tuple[str, ...],
    settings: tuple[str, ...],
    detach: bool,
    dry_run: bool,
    as_json: bool,
    **queued: Any,
) -> None:
    """Encode a model in few bytes, at a rate chosen from a curve that is measured on it.

    MODEL is a folder, Hub id, RUN or RUN:ROLE. Every matrix is encoded at every setting; whole models
    and mixtures are measured; the smallest file that keeps the quality is chosen, or with --budget the
    best within it. With --student the same is done of a smaller model, such as the result of a student
    run, and the choice is among the points of both. OUT gets model.forge, a card with the curve and the
    report. `forge settings compression` lists the settings.

    After Ctrl-C or a crash `forge start --resume RUN` goes on with the run, and keeps what is encoded
    and measured; its name is printed first. The same command again is another run.

    \b
    Example:
      forge compress models/base --out small --retention 0.98
      forge compress 20261121-3fa9c1 --out small --budget 2MB --data items
      forge compress models/base --student RUN --out small --budget 40kB
      forge decompress small/model.forge plain
    """
    from cli.runs.carry_on import begin
    from cli.runs.start import planned
    from runs.home import Home

    if budget is not None and retention is not None:
        raise click.UsageError("give --budget or --retention: each alone chooses a file.")
    config = dict(map(setting, settings))
    given = {"budget": budget, "retention": retention}
    config |= {name: value for name, value in given.items() if value is not None}
    home = Home.default()
    models = (f"model={model}", *(f"students={student}" for student in students))
    plan = planned(home, "compression", config, models, data, out, detach)
    begin(home, plan, queued, detach, dry_run, as_json)
