"""`forge pipeline` and `forge override`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options import Suggesting, emit, json_option, queue_options, say
from cli.pipeline import dry_run as dry_run_costs
from cli.pipeline.init import init_command
from cli.pipeline.report import report_command

if TYPE_CHECKING:
    from runs.home import Home
    from runs.kinds.asked import Plan


@click.group("pipeline", cls=Suggesting)
def pipeline_command() -> None:
    """Run phases in a row, each a run of its own, with gates between them.

    \b
    Example:
      forge pipeline init
      forge pipeline run pipeline.toml --output-dir out
    """


pipeline_command.add_command(init_command)
pipeline_command.add_command(report_command)


@pipeline_command.command("run")
@click.argument("file", type=click.Path())
@click.option("--output-dir", type=click.Path(), help="Folder for the result.")
@click.option("--check", is_flag=True, help="Only check the file and what it names.")
@click.option("--dry-run", is_flag=True, help="Check, and say what each phase will cost here.")
@click.option("--reuse", is_flag=True, help="Take equal runs that have ended instead of running.")
@click.option("--detach", is_flag=True, help="Only submit; workers carry the pipeline on.")
@queue_options
@json_option
def run_command(
    file: str,
    output_dir: str | None,
    check: bool,
    dry_run: bool,
    reuse: bool,
    detach: bool,
    as_json: bool,
    **queued: Any,
) -> None:
    """Run the phases of a TOML FILE, one after another.

    The file is checked whole before anything starts. The phase called NAME is run RUN.2-NAME, which
    every command knows. The same command goes on with the same pipeline after a crash or Ctrl-C; with
    a file that was changed it starts another, and `forge start --resume RUN` goes on with the old one.

    --check looks at the file and what it names, in seconds. --dry-run does the same and then tries
    a part of each phase's work to say what it takes in time, disk and memory.

    With --reuse, a phase whose settings, inputs, profile and version equal those of a run that has
    completed takes that run's result. This is recorded and checked by `forge verify`.

    \b
    Example:
      forge pipeline run examples/speedrun.toml --output-dir speedrun
    """
    from cli.runs.carry_on import begin
    from runs.home import Home

    home = Home.default()
    plan = _plan(home, Path(file), output_dir, detach)
    plan = replace(plan, fields={**plan.fields, "reuse": reuse})
    if check or dry_run:
        report = _checked(plan)
        if dry_run:
            dry_run_costs.run(home, plan, report, as_json)
        else:
            _say_checked(report, as_json)
        return
    begin(home, plan, queued, detach, False, as_json, file)


def _plan(home: Home, file: Path, output_dir: str | None, elsewhere: bool) -> Plan:
    """Return the plan of the pipeline. Raises ConfigError, UnavailableError."""
    from pipeline.submission import file as files
    from runs.kinds.asked import Asked, Lookup
    from weights.storage.model_origin import Finder
    from worker.commands import validate

    named = Finder(home, lambda line: click.echo(line, err=True))
    folder = str(Path(output_dir).absolute()) if output_dir else None
    request = Asked("pipeline", files.read(file), {}, (), folder)
    return validate.plan(request, Lookup({}, named, elsewhere=elsewhere))


def _checked(plan: Plan) -> dict[str, Any]:
    """Check what can be checked before a start; return what will run, and warnings."""
    from pipeline.plan import gates_of
    from runs import kinds
    from worker.commands import validate

    notes = validate.check(plan).warnings
    phases = []
    for number, phase in enumerate(plan.config.phases, start=1):
        kind = kinds.of(phase.kind)
        models = len(kind.roles(kind.parse(phase.settings)))
        gates = [gate.metric for gate in gates_of(plan.config, number, models)]
        phases.append({"phase": phase.name, "kind": phase.kind, "gates": gates})
    return {"phases": phases, "warnings": list(notes)}


def _say_checked(checked: dict[str, Any], as_json: bool) -> None:
    """Print what will run."""
    if as_json:
        emit(checked)
        return
    for number, phase in enumerate(checked["phases"], start=1):
        gates = "gates: " + ", ".join(phase["gates"]) if phase["gates"] else ""
        say(f"{number}  {phase['phase']:16s} {phase['kind']:10s} {gates}".rstrip())
    for note in checked["warnings"]:
        click.echo(f"warning: {note}", err=True)
