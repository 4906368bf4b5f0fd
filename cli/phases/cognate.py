"""`forge cognate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from cli.options import emit, json_option, queue_options, split


@click.command("cognate")
@click.option("--out", required=True, type=click.Path(), help="The folder for models and items.")
@click.option(
    "--preset",
    type=click.Choice(["mini", "tiny", "small", "25m"]),
    default="tiny",
    show_default=True,
    help="How large, how long; mini takes seconds, to try the machinery.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--domains",
    default="code,math,data",
    show_default=True,
    help="A specialist each: code, math, data, prose, multilingual.",
)
@click.option(
    "--optimiser",
    type=click.Choice(["adamw", "muon", "mugrokfast"]),
    default="adamw",
    show_default=True,
    help="muon has learned more from the same tokens (docs/benchmarks.md).",
)
@click.option("--detach", is_flag=True, help="Only submit; another process carries the run on.")
@queue_options
@json_option
def cognate_command(
    out: str,
    preset: str,
    seed: int,
    domains: str,
    optimiser: str,
    detach: bool,
    as_json: bool,
    **queued: Any,
) -> None:
    """Train a small base and specialists (code, math, data) on text that comes with the program.

    `tiny` takes a few minutes on two cores. The items to measure on go into OUT/items. The same command
    goes on with the same run after a crash or Ctrl-C. The models are sources of `forge evo` as folders
    or by RUN:ROLE.

    \b
    Example:
      forge cognate --out models
      forge evo --base-models models/code,models/math,models/data --base-model models/base
    """
    from cli.runs.carry_on import carry_on, recorded, resumed
    from runs.home import Home
    from runs.kinds.asked import Asked
    from worker.commands import validate

    home = Home.default()
    folder = Path(out).absolute()
    config = {"preset": preset, "seed": seed, "domains": split(domains), "optimiser": optimiser}
    plan = validate.plan(Asked("cognate", config, output_dir=str(folder)))
    if queued["key"] is None:
        queued["key"] = f"cognate {folder} {json.dumps(config)}"
    run = recorded(home, plan, queued)
    if detach:
        emit({"run": run}) if as_json else click.echo(f"run {run} submitted")
        return
    run, output = resumed(home, run, {})
    click.echo(
        f"run {run} (go on with it after an interruption: the same command, or forge start "
        f"--resume {run})",
        err=True,
    )
    carry_on(home, run, output, as_json)
