"""`forge evo` and `forge check`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import click

from cli.options import emit, json_option, model_options, table


@click.command("check")
@model_options
@json_option
def check_command(as_json: bool, **options: Any) -> None:
    """Check config, models and data in seconds; start nothing.

    \b
    Example:
      forge check --base-models models/code,models/math,models/data --base-model models/base
    """
    from cli import plan as plans

    plan = plans.make(options)
    found = plans.check(plan)
    if as_json:
        emit({"ok": True, "warnings": found.warnings, "parameters": found.parameters,
              "items": found.items, "config": plan.config.model_dump(mode="json")})  # fmt: skip
        return
    for warning in found.warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(f"models    {', '.join(s.name for s in plan.sources)}")
    click.echo(f"base      {plan.base.name if plan.base else plan.sources[0].name}")
    click.echo(f"size      {found.parameters:,} parameters")
    rows = [[d, *(str(n) for n in counts.values())] for d, counts in sorted(found.items.items())]
    table(["items of", "train", "search", "selection", "test"], rows)
    click.echo("ok: this can be started.")


@click.command("evo")
@model_options
@click.option("--output-dir", type=click.Path(), help="Folder for the champion and the report.")
@click.option("--resume", metavar="RUN", help="Go on with a run after a crash or Ctrl-C.")
@json_option
def evo_command(resume: str | None, as_json: bool, **options: Any) -> None:
    """Evolve merges of models; start a run or resume one.

    Progress goes to stderr, the result to stdout. Ctrl-C leaves a run that can be resumed.

    \b
    Example:
      forge evo --base-models models/code,models/math,models/data \\
                --base-model models/base --data models/items --gens 8 --output-dir champion
      forge evo --resume 20261121-3fa9c1
    """
    from worker.home import Home

    home = Home.default()
    if resume is None:
        run, output = _start(home, options)
    else:
        run, output = _resumed(home, resume, options)
    carry_on(home, run, output, as_json)


def carry_on(home: Any, run: str, output: str | None, as_json: bool) -> None:
    """Carry a run to its end, write the champion's folder and announce the result."""
    from cli import export

    state = _follow(home, run)
    written = export.write(home, state, Path(output) if output else Path(f"{run}-champion"))
    export.announce(state, written, as_json)
    if not state.completed:
        sys.exit(1)


def _start(home: Any, options: dict[str, Any]) -> tuple[str, str | None]:
    """Check everything, then submit. Nothing is recorded where the input is bad."""
    from cli import plan as plans
    from worker import advance

    plan = plans.make(options)
    for warning in plans.check(plan).warnings:
        click.echo(f"warning: {warning}", err=True)
    _check_writable(plan.output_dir)
    store = home.open_store()
    output = str(Path(plan.output_dir).absolute()) if plan.output_dir else None
    run = advance.submit(store, plan.config, plan.sources, plan.base, plan.data, output_dir=output)
    store.close()
    click.echo(
        f"run {run} (go on with it after an interruption: forge evo --resume {run})", err=True
    )
    return run, output


def _check_writable(output_dir: str | None) -> None:
    """Find out before hours of work whether the result can be written."""
    import os

    from evomerge.errors import UnavailableError

    parent = Path(output_dir or ".").absolute()
    while not parent.exists():
        parent = parent.parent
    if not os.access(parent, os.W_OK):
        raise UnavailableError(
            f"the output folder cannot be made: {parent} is not writable. Choose another with "
            "--output-dir."
        )


def _resumed(home: Any, run: str, options: dict[str, Any]) -> tuple[str, str | None]:
    """The run to go on with. Settings of a run are fixed: giving some is an error."""
    from evomerge.errors import ConfigError
    from evomerge.log import load

    fixed = [name for name, value in options.items() if value and name != "output_dir"]
    if fixed:
        raise ConfigError(
            f"--resume goes on with a run as it was started: leave out {', '.join(sorted(fixed))}."
        )
    store = home.open_store()
    state = load(store, run)
    store.close()
    given = state.submitted.output_dir if state.submitted else None
    return state.run, options.get("output_dir") or given


def _follow(home: Any, run: str):
    """Carry the run on to its end, showing what happens. Ctrl-C stops between two tasks."""
    from cli.progress import Progress
    from worker import advance
    from worker.artifacts import Artifacts

    store = home.open_store()
    interrupted: list[int] = []

    def stop(_signal: int, _frame: Any) -> None:
        if interrupted:
            raise KeyboardInterrupt
        interrupted.append(1)
        click.echo("stopping after this step; Ctrl-C again stops at once", err=True)

    before = signal.signal(signal.SIGINT, stop)
    try:
        with Progress() as progress:
            worker = advance.Worker(
                store, Artifacts(home.artifacts), progress.watch, lambda: bool(interrupted)
            )
            state = advance.finish(worker, run)
    except KeyboardInterrupt:
        state = None
    finally:
        signal.signal(signal.SIGINT, before)
        store.close()
    if state is None or not state.ended:
        click.echo(f"interrupted. Go on with: forge evo --resume {run}", err=True)
        sys.exit(130)
    return state
