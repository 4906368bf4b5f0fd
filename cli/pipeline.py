"""`forge pipeline` and `forge override`: run pipelines, write their files, print their reports.

`forge pipeline init` writes a pipeline file to start from. `forge pipeline run FILE --dry-run`
forecasts the cost of each phase on this machine. `forge pipeline report` works at any time.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent_forge.cli.options import (
    Json,
    SuggestingGroup,
    emit,
    json_option,
    queue_options,
    say,
    show_table,
    split,
    tell,
)
from agent_forge.runs.system.durations import duration, size

if TYPE_CHECKING:
    from agent_forge.runs.home import Home
    from agent_forge.runs.kinds.asked import Plan

#: The pipeline that `forge pipeline init` writes, of eight phases.
_TEMPLATE = "pipeline.toml"


def written(file: str, sources: list[str], base: str | None, data: list[str]) -> str:
    """Return a pipeline file's text: it merges given models, or else trains specialists first."""
    template = (files("agent_forge.cli") / _TEMPLATE).read_text("utf-8").replace(_TEMPLATE, file)
    if not sources:
        return template
    head, *phases = template.split("\n[[phase]]\n")
    merge = next(phase for phase in phases if 'kind = "evomerge"' in phase).split("\n\n#")[0]
    models = {"base": base, "sources": sources} if base else {"sources": sources}
    lines = ["models = { " + ", ".join(f"{r} = {json.dumps(m)}" for r, m in models.items()) + " }"]
    lines += [f"data = {json.dumps(data)}"] if data else []
    settings = merge.index("settings = ")
    merge = merge[: merge.index("models = ")] + "\n".join([*lines, merge[settings:]])
    head = "# An evolved merge of given models.\n" + head.partition("\n")[2]
    if data:
        head += f"\ntest = {json.dumps(data)}  # what results are measured on: the slice test\n"
    return f"{head}\n[[phase]]\n{merge}\n"


@click.command("init")
@click.argument("file", default="pipeline.toml", type=click.Path())
@click.option("--base-models", metavar="A,B,C", help="The models to merge; none: some are trained.")
@click.option("--base-model", metavar="M", help="Their common ancestor.")
@click.option("--data", multiple=True, type=click.Path(), help="Items to measure on.")
@json_option
def init_command(
    file: str, base_models: str | None, base_model: str | None, data: tuple[str, ...], as_json: bool
) -> None:
    """Write a pipeline's file to start from: FILE (default pipeline.toml). No file is overwritten.

    \b
    Example:
      forge pipeline init
      forge pipeline init merge.toml --base-models models/code,models/math --base-model models/base
    """
    from agent_forge.runs.errors import ConfigError
    from agent_forge.runs.system.plain_text import check

    sources = split(base_models)
    if (base_model or data) and not sources:
        raise ConfigError("a base and data are those of models: give --base-models, too.")
    for text in (*sources, base_model or "", *data):
        check(text, "the name of a model or of data")
    text = written(Path(file).name, sources, base_model, list(data))
    try:
        with Path(file).open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError as error:
        raise ConfigError(f"{file} exists already, and is left as it is. Name another.") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be written: {error}. Name another.") from error
    following = f"forge pipeline run {shlex.quote(file)}"
    if as_json:
        emit({"file": file, "next": [f"{following} --check", following]})
        return
    say(f"wrote     {file}")
    say(f"next      {following} --check")
    say(f"          {following}")


@click.command("report")
@click.argument("run")
@click.option("--out", type=click.Path(), help="A folder for report.md and report.html.")
@json_option
def report_command(run: str, out: str | None, as_json: bool) -> None:
    """Print a pipeline's report as Markdown, a section a phase, or write it as Markdown and HTML.

    Of a pipeline that is under way or has failed it says what is known so far. It is in the folder of
    --output-dir, too.

    \b
    Example:
      forge pipeline report 20261121-3fa9c1 --out report
    """
    from contextlib import closing

    from agent_forge.pipeline import folder
    from agent_forge.pipeline.events import PipelineState
    from agent_forge.runs.home import Home
    from agent_forge.runs.lists.finding import load_of

    home = Home.default()
    with closing(home.open_store()) as store:
        name = load_of(PipelineState, store, run).run
    files = folder.documents(home, name)
    if out is None:
        text = files[folder.MARKDOWN].decode()
        emit({"run": name, "report": text}) if as_json else say(text.rstrip())
        return
    folder.put(Path(out), files)
    emit({"run": name, "folder": out}) if as_json else say(f"report    {out}/{folder.MARKDOWN}, .html")


@click.group("pipeline", cls=SuggestingGroup)
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
    **queued: object,
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
    from agent_forge.cli.runs.carry_on import begin
    from agent_forge.runs.home import Home

    home = Home.default()
    plan = _plan(home, Path(file), output_dir, detach)
    plan = replace(plan, fields={**plan.fields, "reuse": reuse})
    if check or dry_run:
        report = _checked(plan)
        if dry_run:
            run(home, plan, report, as_json)
        else:
            _say_checked(report, as_json)
        return
    begin(home, plan, queued, detach, False, as_json, file)


def _plan(home: Home, file: Path, output_dir: str | None, elsewhere: bool) -> Plan:
    """Return the plan of the pipeline in a file. Raises ConfigError, UnavailableError."""
    from agent_forge.pipeline.submission import file as files
    from agent_forge.runs.kinds.asked import Lookup, RunRequest
    from agent_forge.weights.storage.model_origin import Finder
    from agent_forge.worker.commands import submit

    named = Finder(home, lambda line: click.echo(line, err=True))
    folder = str(Path(output_dir).absolute()) if output_dir else None
    request = RunRequest("pipeline", files.read(file), {}, (), folder)
    return submit.plan(request, Lookup({}, named, elsewhere=elsewhere))


def _checked(plan: Plan) -> dict[str, object]:
    """Check a plan; return {"phases": name, kind and gates of each, "warnings": texts}."""
    from agent_forge.pipeline.plan import gates_of
    from agent_forge.runs import kinds
    from agent_forge.worker.commands import submit

    notes = submit.check(plan).warnings
    phases = []
    for number, phase in enumerate(plan.config.phases, start=1):
        kind = kinds.of(phase.kind)
        models = len(kind.roles(kind.settings.parse(phase.settings)))
        gates = [gate.metric for gate in gates_of(plan.config, number, models)]
        phases.append({"phase": phase.name, "kind": phase.kind, "gates": gates})
    return {"phases": phases, "warnings": list(notes)}


def _say_checked(checked: Json, as_json: bool) -> None:
    """Print phases with gates, and the warnings."""
    if as_json:
        emit(checked)
        return
    for number, phase in enumerate(checked["phases"], start=1):
        gates = "gates: " + ", ".join(phase["gates"]) if phase["gates"] else ""
        say(f"{number}  {phase['phase']:16s} {phase['kind']:10s} {gates}".rstrip())
    for note in checked["warnings"]:
        click.echo(f"warning: {note}", err=True)


#: Amount → (heading, function that formats it).
_AMOUNTS = {
    "seconds": ("time", duration),
    "disk": ("on disk at the end", size),
    "memory": ("memory at once", size),
}
_HOW = (
    "Times were tried here, or are those of a run with the same settings; bytes are counted. "
    "--json says from what each number is derived."
)


def run(home: Home, plan: Plan, checked: Json, as_json: bool) -> None:
    """Try the phases' work and print its costs; record nothing."""
    from contextlib import closing, nullcontext

    from agent_forge.cli.runs.progress import lasting
    from agent_forge.pipeline.submission import dry_run
    from agent_forge.weights.storage.model_origin import Finder

    click.echo("trying each phase's work here: its start, some steps, some readings", err=True)
    for note in checked["warnings"]:
        click.echo(f"warning: {note}", err=True)
    named, costs = Finder(home, lambda line: click.echo(line, err=True)), []
    there = home.url is not None or home.database.exists()
    with closing(home.open_store()) if there else nullcontext() as store, lasting("trying") as waiting:
        for cost in dry_run.costs(plan, named, store):
            costs.append(cost)
            waiting.say(f"tried {cost.label}")
    report = dry_run.told(costs)
    if as_json:
        emit({**checked, **report})
        return
    _show(report)


def _show(report: Json) -> None:
    """Print the table of costs, and why some of its numbers are unknown."""
    rows = [
        [row["label"], row["kind"], *(_amount(row, n) for n in _AMOUNTS)] for row in report["costs"]
    ]
    rows.append(["in all", "", *(_whole(report["in_all"][name], name) for name in _AMOUNTS)])
    show_table(["phase", "kind", *(heading for heading, _ in _AMOUNTS.values())], rows)
    unknown: dict[str, dict[str, None]] = {}
    for row in report["costs"]:
        for name in _AMOUNTS:
            if row[name]["value"] is None:
                unknown.setdefault(row[name]["from"], {})[row["label"]] = None
    say("")
    for why, labels in unknown.items():
        tell(f"{', '.join(labels)}: {why}")
    tell(_HOW)


def _amount(row: Json, name: str) -> str:
    value = row[name]["value"]
    return "not known" if value is None else _AMOUNTS[name][1](value)


def _whole(total: dict[str, object], name: str) -> str:
    if total["value"] is None:
        return "not known"
    least = "at least " if total["without"] else ""
    return least + _AMOUNTS[name][1](total["value"])
