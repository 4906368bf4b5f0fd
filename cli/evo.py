"""`forge evo` and `forge check`."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from cli.options import QUEUED, emit, json_option, model_options, queue_options, table

#: Seconds between two looks at a run that another process carries.
WATCH = 0.3


@click.command("check")
@model_options
@json_option
def check_command(as_json: bool, **options: Any) -> None:
    """Check config, models and data in seconds; start nothing.

    \b
    Example:
      forge check --base-models models/code,models/math,models/data --base-model models/base
    """
    from cli.evomerge import run_request as plans

    plan = plans.make(options)
    found = plans.check(plan)
    if as_json:
        emit({"ok": True, "warnings": found.warnings, "parameters": found.parameters,
              "items": found.items, "config": plan.config.model_dump(mode="json")})  # fmt: skip
        return
    for warning in found.warnings:
        click.echo(f"warning: {warning}", err=True)
    sources, base = plan.fields["sources"], plan.fields["base"]
    click.echo(f"models    {', '.join(s.name for s in sources)}")
    click.echo(f"base      {base.name if base else sources[0].name}")
    click.echo(f"size      {found.parameters:,} parameters")
    rows = [[d, *(str(n) for n in counts.values())] for d, counts in sorted(found.items.items())]
    table(["items of", "train", "search", "selection", "test"], rows)
    click.echo("ok: this can be started.")


@click.command("evo")
@model_options
@click.option("--output-dir", type=click.Path(), help="Folder for the champion and the report.")
@click.option("--resume", metavar="RUN", help="Go on with a run after a crash or Ctrl-C.")
@click.option("--detach", is_flag=True, help="Only submit; another process carries the run on.")
@click.option("--dry-run", is_flag=True, help="Estimate what it will cost here; start nothing.")
@click.option("--wandb", is_flag=True, help="Let W&B follow it (or FORGE_WANDB=1).")
@queue_options
@json_option
def evo_command(
    resume: str | None, detach: bool, dry_run: bool, wandb: bool, as_json: bool, **options: Any
) -> None:
    """Evolve merges of models; start a run or resume one.

    Progress goes to stderr, the result to stdout. Ctrl-C leaves a run that can be resumed.

    \b
    Example:
      forge evo --base-models models/code,models/math,models/data \\
                --base-model models/base --data models/items --gens 8 --output-dir champion
      forge evo --resume 20261121-3fa9c1
    """
    from runs.home import Home

    home = Home.default()
    queued = {name: options.pop(name) for name in QUEUED}
    tracked = _tracked(wandb, detach or dry_run)
    if dry_run:
        _estimate(options, resume is not None, detach, as_json)
        return
    if resume is None:
        run = _submitted(home, options, queued, detach)
        if detach:
            emit({"run": run}) if as_json else click.echo(f"run {run} submitted")
            return
        run, output = _resumed(home, run, {})
        click.echo(
            f"run {run} (go on with it after an interruption: forge evo --resume {run})", err=True
        )
    else:
        run, output = _resumed(home, resume, {**options, **queued, "detach": detach})
    carry_on(home, run, output, as_json, tracked)


def _tracked(flag: bool = False, elsewhere: bool = False) -> bool:
    """Whether W&B is to follow the run that this process carries."""
    from runs.errors import ConfigError
    from worker.exports import wandb_follower

    if flag and elsewhere:
        raise ConfigError(
            "--wandb follows a run that this command carries: leave it out here, and follow the run "
            "with `forge wandb sync RUN --follow`."
        )
    return not elsewhere and wandb_follower.wanted(flag, _warn)


def _warn(text: str) -> None:
    click.echo(f"warning: {text}", err=True)


def _estimate(options: dict[str, Any], resume: bool, detach: bool, as_json: bool) -> None:
    """Say what a run would cost; nothing is recorded."""
    from cli.evomerge import run_request as plans
    from evomerge.run import events
    from evomerge.tasks.estimate import estimate
    from runs.errors import ConfigError

    for name, given in (("--resume", resume), ("--detach", detach)):
        if given:
            raise ConfigError(f"--dry-run estimates a run and starts nothing: leave out {name}.")
    plan = plans.make(options)
    for warning in plans.check(plan).warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo("measuring this machine; a minute at most", err=True)
    found = estimate(events.Submitted(run="dry-run", owner="", config=plan.config, **plan.fields))
    if as_json:
        emit(found)
        return
    for line in estimated(found):
        click.echo(line)


def estimated(found: dict[str, Any]) -> list[str]:
    """An estimate for people."""
    tasks = ", ".join(f"{count} {kind}" for kind, count in sorted(found["tasks"].items()))
    items = ", ".join(
        f"{count:,} {kind}" for kind, count in sorted(found["items"].items()) if count
    )
    disk = {name: f"{size / 1e6:,.1f} MB" for name, size in found["disk_bytes"].items()}
    rows = [f"  {what:20s} {_duration(value)}" for what, value in found["seconds"].items() if value]
    return [
        f"generations  {found['generations']}, if no plateau ends it before; then: {found['ends_by']}",
        f"tasks        {tasks}",
        f"items        {items}; {found['tokens']:,} tokens in windows",
        f"disk         {disk['a_model']} a model; {disk['kept_at_the_end']} kept at the end, the "
        f"cache's budget or {disk['at_most']} on the way",
        f"time         {_duration(found['total_seconds'])} on this machine by one process:",
        *rows,
        *(f"{name} would end it before that" for name in found["ended_before_by"]),
    ]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{seconds:.1f} s"


def carry_on(
    home: Any, run: str, output: str | None, as_json: bool, tracked: bool | None = None
) -> None:
    """Carry a run to its end, write the champion's folder and announce the result.

    W&B follows it where that was found to be wanted; by default where FORGE_WANDB says so.
    """
    from cli import export
    from evomerge.tasks import champion_folder
    from worker.exports import wandb_follower

    wanted = _tracked() if tracked is None else tracked
    with wandb_follower.beside(home, run, _warn) if wanted else nullcontext():
        state = _follow(home, run)
        written = champion_folder.write(
            home, state, Path(output) if output else Path(f"{run}-champion")
        )
        export.announce(state, written, as_json)
    if not state.completed:
        sys.exit(1)


@click.command("submit")
@model_options
@queue_options
@json_option
def submit_command(as_json: bool, **options: Any) -> None:
    """Check everything and record that a run is wanted. Another process carries it on.

    Twice with one --key starts one run. When it has ended, `forge export RUN --out champion` writes the
    champion's folder.

    \b
    Example:
      forge submit --base-models models/code,models/math,models/data \\
                   --base-model models/base --priority 5 --key nightly-42
    """
    from runs.home import Home

    queued = {name: options.pop(name) for name in QUEUED}
    run = _submitted(Home.default(), options, queued, True)
    emit({"run": run}) if as_json else click.echo(f"run {run} submitted")


@click.command("watch")
@click.argument("run")
@json_option
def watch_command(run: str, as_json: bool) -> None:
    """Follow a run that another process carries, until it has ended. Ctrl-C only stops watching.

    On a terminal: curves, the population, who is at what. Otherwise a line a generation.

    \b
    Example:
      forge watch 20261121-3fa9c1
    """
    from cli.progress import Progress
    from runs import kinds
    from runs.history import repository
    from runs.history.run_cache import RunCache
    from runs.home import Home
    from worker.queue.active_tasks import AtWork

    store = Home.default().open_store()
    try:
        name = repository.full_name(store, run)
        runs = RunCache(store, 1)
        with Progress(AtWork(store, name)) as progress:
            while True:
                state, rows = runs.refresh(name)
                progress.watch(state, rows)
                if state.ended:
                    break
                time.sleep(0 if rows else WATCH)
    finally:
        store.close()
    reason = state.failed.reason if state.failed else None
    result = kinds.of(state.kind).result_id(state)
    told = {"run": name, "status": state.status, "champion": result, "reason": reason}
    said = f"run {name} {state.status}" + (f": {reason}" if reason else "")
    emit(told) if as_json else click.echo(said)
    if not state.completed:
        sys.exit(1)


def _submitted(home: Any, options: dict[str, Any], queued: dict[str, Any], elsewhere: bool) -> str:
    """The run that was recorded, now or, under the same key, before."""
    from dataclasses import replace

    from cli.evomerge import run_request as plans
    from runs.home import threads
    from weights.storage.output_folder import check_target
    from worker.commands import submit

    plan = plans.make(options, elsewhere)
    for warning in plans.check(plan).warnings:
        click.echo(f"warning: {warning}", err=True)
    out = None if plan.output_dir is None else str(check_target(Path(plan.output_dir)))
    threads()
    store = home.open_store()
    try:
        return submit.submit(store, replace(plan, output_dir=out), **queued)
    finally:
        store.close()


def _resumed(home: Any, run: str, options: dict[str, Any]) -> tuple[str, str | None]:
    """The run to go on with. Settings of a run are fixed: giving some is an error."""
    from runs import imported_pasts
    from runs.errors import ConfigError
    from runs.history.repository import load
    from runs.kinds.user_events import Resumed
    from weights.storage.output_folder import check_target
    from worker.commands.control import control

    unset = (None, False, ())
    fixed = [
        name
        for name, value in options.items()
        if name != "output_dir" and not any(value is one for one in unset)
    ]
    if fixed:
        raise ConfigError(
            f"--resume goes on with a run as it was started: leave out {', '.join(sorted(fixed))}."
        )
    store = home.open_store()
    try:
        state = load(store, run)
        if state.head in imported_pasts.heads(
            store
        ):  # asked for by name: the run becomes the user's
            control(store, state.run, Resumed())
            state = load(store, state.run)
    finally:
        store.close()
    given = state.submitted.output_dir if state.submitted else None
    output = options.get("output_dir") or given
    check_target(Path(output or f"{state.run}-champion"))
    return state.run, output


def _follow(home: Any, run: str):
    """Carry the run on to its end, showing what happens. Ctrl-C stops between two tasks."""
    from cli.progress import Progress
    from weights.storage.weight_cache import Artifacts
    from worker.tasks import runner

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
            worker = runner.Worker(
                store, Artifacts.of(home), progress.watch, lambda: bool(interrupted)
            )
            state = runner.finish(worker, run)
    except KeyboardInterrupt:
        state = None
    finally:
        signal.signal(signal.SIGINT, before)
        store.close()
    if state is None or not state.ended:
        click.echo(f"interrupted. Go on with: forge evo --resume {run}", err=True)
        sys.exit(130)
    return state
