"""`forge evo`, `check` and `submit`: merging runs, asked for with options."""

from __future__ import annotations

from typing import Any

import click

from cli.evomerge.options import model_options
from cli.options import QUEUED, emit, json_option, name_of, queue_options, table
from cli.runs.carry_on import begin, carry_on, resumed, tracked
from runs.system.durations import duration, size


@click.command("check")
@model_options
@json_option
def check_command(as_json: bool, **options: Any) -> None:
    """Check config, models and data in seconds; start nothing.

    Small models of one base are compared by their weights, as `forge mergeability` does it.

    \b
    Example:
      forge check --base-models models/code,models/math,models/data --base-model models/base
    """
    from cli.evomerge import mergeability, run_request
    from evomerge.mergeability import report

    plan = run_request.make(options)
    check_report = run_request.check(plan)
    relations, names, left = mergeability.of_check(plan)
    if as_json:
        emit(
            {
                "ok": True,
                "mergeability": relations
                and report.as_data(names[1:], names[0], relations, None, {}),
                "warnings": check_report.warnings,
                "parameters": check_report.parameters,
                "items": check_report.items,
                "config": plan.config.flat(),
            }
        )
        return
    for warning in check_report.warnings:
        click.echo(f"warning: {warning}", err=True)
    sources, base = plan.fields["sources"], plan.fields["base"]
    click.echo(f"models    {', '.join(s.name for s in sources)}")
    click.echo(f"base      {base.name if base else sources[0].name}")
    click.echo(f"size      {check_report.parameters:,} parameters")
    rows = [
        [d, *(str(n) for n in counts.values())] for d, counts in sorted(check_report.items.items())
    ]
    table(["items of", "train", "search", "selection", "test"], rows)
    for title, columns, lines in (
        report.weights(relations, names[1:], names[0]) if relations else ()
    ):
        table(columns, lines, title)
    click.echo(left, err=True)
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
    from cli.evomerge import run_request
    from runs.home import Home

    home = Home.default()
    queued = {name: options.pop(name) for name in QUEUED}
    followed = tracked(wandb, detach or dry_run)
    if dry_run:
        _estimate(options, resume is not None, detach, as_json)
        return
    if resume is None:
        plan, file = run_request.make(options, detach), options.get("config_file")
        begin(home, plan, queued, detach, False, as_json, file, followed)
        return
    resume = _checkpoint(home, resume)
    run, output = resumed(home, resume, {**options, **queued, "detach": detach})
    carry_on(home, run, output, as_json, followed)


def _checkpoint(home: Any, text: str) -> str:
    """Return the run to go on with; of a checkpoint of the source documents, the run that it means."""
    from evomerge.run.views import checkpoints
    from worker.commands.fork import fork, plan

    if checkpoints.generation_of(text) is None:
        return text
    store = home.open_store()
    try:
        run, generation = checkpoints.meant(store, text)
        if generation is not None:
            run = fork(store, plan(store, run, None, generation, {}))
    finally:
        store.close()
    click.echo(f"{text}: run {name_of(run)} goes on; its log has every generation", err=True)
    return run


def _estimate(options: dict[str, Any], resume: bool, detach: bool, as_json: bool) -> None:
    """Print what a run would cost; nothing is recorded."""
    from cli.evomerge import run_request
    from evomerge.run import events
    from evomerge.tasks.estimate import estimate
    from runs.errors import ConfigError

    for name, flag in (("--resume", resume), ("--detach", detach)):
        if flag:
            raise ConfigError(f"--dry-run estimates a run and starts nothing: leave out {name}.")
    plan = run_request.make(options)
    for warning in run_request.check(plan).warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo("measuring this machine; a minute at most", err=True)
    estimates = estimate(
        events.Submitted(run="dry-run", owner="", config=plan.config, **plan.fields)
    )
    if as_json:
        emit(estimates)
        return
    for line in estimated(estimates):
        click.echo(line)


def estimated(estimates: dict[str, Any]) -> list[str]:
    """Return an estimate as lines of text."""
    tasks = ", ".join(f"{count} {kind}" for kind, count in sorted(estimates["tasks"].items()))
    items = ", ".join(
        f"{count:,} {kind}" for kind, count in sorted(estimates["items"].items()) if count
    )
    disk = {name: size(count) for name, count in estimates["disk_bytes"].items()}
    rows = [
        f"  {what:20s} {duration(value)}" for what, value in estimates["seconds"].items() if value
    ]
    return [
        f"generations  {estimates['generations']}, if no plateau ends it before; then: {estimates['ends_by']}",
        f"tasks        {tasks}",
        f"items        {items}; {estimates['tokens']:,} tokens in windows",
        f"disk         {disk['a_model']} a model; {disk['kept_at_the_end']} kept at the end, the "
        f"cache's budget or {disk['at_most']} on the way",
        f"memory       {size(estimates['memory_bytes'])} for weights, cache and activations of a candidate",
        f"time         {duration(estimates['total_seconds'])} on this machine by one process:",
        *rows,
        *(f"{name} would end it before that" for name in estimates["ended_before_by"]),
        *(
            ["the budget is too small: generation 0 and the final report alone take longer"]
            if estimates["budget_too_small"]
            else []
        ),
    ]


@click.command("submit")
@model_options
@queue_options
@json_option
def submit_command(as_json: bool, **options: Any) -> None:
    """Check everything and record that a run is wanted. Another process carries it on.

    The same request twice is one run; --key TEXT begins another one. When the run has ended, `forge
    export RUN --out champion` writes the champion's folder.

    \b
    Example:
      forge submit --base-models models/code,models/math,models/data \\
                   --base-model models/base --priority 5 --key nightly-42
    """
    from cli.evomerge import run_request
    from runs.home import Home

    queued = {name: options.pop(name) for name in QUEUED}
    plan, file = run_request.make(options, True), options.get("config_file")
    begin(Home.default(), plan, queued, True, False, as_json, file)
