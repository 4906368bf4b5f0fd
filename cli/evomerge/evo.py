"""`forge evo`, `check` and `submit`: merging runs from options, a config file or a genome file.

Options and config file become a checked plan, which `forge evo` starts and `forge check` prints. From
mergekit-evolve's genome files a run takes what it can, and reports the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from agent_forge.cli import options
from agent_forge.cli.options import (
    QUEUED,
    Json,
    emit,
    json_option,
    name_of,
    queue_options,
    set_option,
    setting,
    split,
    table,
    together,
)
from agent_forge.cli.runs.carry_on import begin, carry_on, resumed, tracked
from agent_forge.cli.runs.progress import lasting
from agent_forge.evomerge.config import RENAMED
from agent_forge.evomerge.recipes.recipe import SPECIES
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import Lookup, Plan, RunRequest
from agent_forge.runs.system.durations import duration, size
from agent_forge.runs.system.plain_text import LONGEST, shown
from agent_forge.runs.system.process_limits import peak_memory
from agent_forge.weights.folders.sources import ALIASES
from agent_forge.weights.storage.model_origin import Finder
from agent_forge.worker.commands import submit
from agent_forge.worker.commands.submit import check

#: Options that name a run's models and data.
model_options = together(
    click.option(
        "--base-models",
        metavar="A,B,C",
        help="The models to merge: folders, GGUF files, Hub ids (owner/name[@revision]), aliases, "
        "runs (RUN/champion, RUN:ROLE, RUN:CANDIDATE), or registered models by id or name. For "
        "forge evo without any models: deepseek,nemotron,qwen2 of the Hub.",
    ),
    click.option("--base-model", metavar="M", help="Their common ancestor."),
    click.option(
        "--data",
        multiple=True,
        type=click.Path(),
        help="Items to measure on: .jsonl, .txt, .json, .csv or .parquet files, or folders "
        "of them. Default: built-in text, less of it the larger the models; --dry-run of "
        "`forge evo` says what it costs.",
    ),
    click.option(
        "--config",
        "config_file",
        type=click.Path(),
        help="Settings, TOML, JSON or YAML: forge settings.",
    ),
    set_option,
    click.option(
        "--budget",
        metavar="TIME",
        help="Time for the whole run: 30m, 1h, 2h30m. Without --gens, it ends the search.",
    ),
    click.option("--gens", type=int, help="Generations after generation 0 (default 50)."),
    click.option("--seed", type=int, help="Seed of the run (default 0)."),
    click.option("--strategy", help="Search strategy: elite-loser, auto, tournament, cma-es, nsga2."),
    click.option("--device", help="auto, cpu or cuda:N.  [default: auto]"),
    click.option("--strict", is_flag=True, help="Refuse sources whose settings differ."),
)


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
    from agent_forge.cli.evomerge import mergeability
    from agent_forge.evomerge.mergeability import report

    plan = make(options)
    check_report = check(plan)
    relations, names, left = mergeability.of_check(plan)
    if as_json:
        emit(
            {
                "ok": True,
                "mergeability": relations and report.as_data(names[1:], names[0], relations, None, {}),
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
    rows = [[d, *(str(n) for n in counts.values())] for d, counts in sorted(check_report.items.items())]
    table(["items of", "train", "search", "selection", "test"], rows)
    for title, columns, lines in report.weights(relations, names[1:], names[0]) if relations else ():
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
    from agent_forge.runs.home import Home

    home = Home.default()
    queued = {name: options.pop(name) for name in QUEUED}
    followed = tracked(wandb, detach or dry_run)
    if dry_run:
        _estimate(options, resume is not None, detach, as_json)
        return
    if resume is None:
        plan, file = make(options, detach), options.get("config_file")
        begin(home, plan, queued, detach, False, as_json, file, followed)
        return
    resume = _checkpoint(home, resume)
    run, output = resumed(home, resume, {**options, **queued, "detach": detach})
    carry_on(home, run, output, as_json, followed)


def _checkpoint(home: Home, text: str) -> str:
    """Return the run to resume: `text`, or for a checkpoint its run, as a new fork if it has ended."""
    from agent_forge.evomerge.run.views import outlook
    from agent_forge.worker.commands.fork import fork, plan

    if outlook.generation_of(text) is None:
        return text
    with closing(home.open_store()) as store:
        run, generation = outlook.meant(store, text)
        if generation is not None:
            run = fork(store, plan(store, run, None, generation, {}))
    click.echo(f"{text}: run {name_of(run)} goes on; its log has every generation", err=True)
    return run


def _estimate(options: Json, resume: bool, detach: bool, as_json: bool) -> None:
    """Print a run's estimated cost; record nothing. Raises ConfigError with `resume` or `detach`."""
    from agent_forge.evomerge.run import events
    from agent_forge.evomerge.tasks.estimate import estimate
    from agent_forge.runs.errors import ConfigError

    for name, flag in (("--resume", resume), ("--detach", detach)):
        if flag:
            raise ConfigError(f"--dry-run estimates a run and starts nothing: leave out {name}.")
    plan = make(options)
    for warning in check(plan).warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo("measuring this machine; a minute at most", err=True)
    submitted = events.Submitted(run="dry-run", owner="", config=plan.config, **plan.fields)
    with lasting("trying"), peak_memory() as peak:
        estimates = estimate(submitted)
    estimates = {**estimates, "memory_bytes": max(estimates["memory_bytes"], peak[0])}
    if as_json:
        emit(estimates)
        return
    for line in estimated(estimates):
        click.echo(line)


def estimated(estimates: Json) -> list[str]:
    """Return an estimate as lines of text for a terminal."""
    tasks = ", ".join(f"{count} {kind}" for kind, count in sorted(estimates["tasks"].items()))
    items = ", ".join(
        f"{count:,} {kind}" for kind, count in sorted(estimates["items"].items()) if count
    )
    disk = {name: size(count) for name, count in estimates["disk_bytes"].items()}
    rows = [f"  {what:20s} {duration(value)}" for what, value in estimates["seconds"].items() if value]
    return [
        f"generations  {estimates['generations']}, if no plateau ends it before; then: "
        f"{estimates['ends_by']}",
        f"tasks        {tasks}",
        f"items        {items}; {estimates['tokens']:,} tokens in windows",
        f"disk         {disk['a_model']} a model; {disk['kept_at_the_end']} kept at the end, the "
        f"cache's budget or {disk['at_most']} on the "
        "way",
        f"memory       {size(estimates['memory_bytes'])}: weights, cache and activations of a "
        "candidate, or the most of this process while it tried, if that is more",
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
    from agent_forge.runs.home import Home

    queued = {name: options.pop(name) for name in QUEUED}
    plan, file = make(options, True), options.get("config_file")
    begin(Home.default(), plan, queued, True, False, as_json, file)


__all__ = ["Plan", "check", "make", "read_file"]

#: Keys of a config file that name models and data rather than settings.
ABOUT_MODELS = ("base_models", "base_model", "data", "output_dir")


def read_file(path: str | None) -> Json:
    """Return a config or mergekit-evolve genome file's settings; {} for None. Raises ConfigError."""
    data = options.read(path)
    if path is not None and "genome" in data:
        data, warnings = read(data, str(Path(path)))
        for warning in warnings:
            click.echo(f"warning: {warning}", err=True)
    return data


def make(options: Mapping[str, Any], elsewhere: bool = False) -> Plan:
    """Return the plan that options and config file ask for; see `worker.commands.submit.plan`.

    Raises ConfigError if no model is named.
    """
    file = read_file(options.get("config_file"))
    about = {key: file.pop(key) for key in ABOUT_MODELS if key in file}
    flags = {
        "generations": options.get("gens"),
        "budget_hours": options.get("budget"),
        "seed": options.get("seed"),
        "strategy": options.get("strategy"),
        "device": options.get("device"),
        "strict": options.get("strict") or None,
    }
    chosen = {name: value for name, value in flags.items() if value is not None}
    settings = dict(map(setting, options.get("settings") or ()))
    if twice := sorted({RENAMED.get(name, name) for name in settings} & set(chosen)):
        raise ConfigError(f"--set {twice[0]} has an option of its own, too: leave one of both out.")
    chosen |= settings
    file = _without(file, chosen)
    if isinstance(file.get("search"), dict):
        file["search"] = _without(file["search"], chosen)
    base = options.get("base_model") or about.get("base_model")
    sources = split(options.get("base_models")) or about.get("base_models", [])
    if not sources and not base:
        raise ConfigError(
            "no models are given: --base-models A,B,C --base-model BASE, each a folder, a Hub id or a "
            "model of a run; or `forge init` in the folder of your models, then --config run.toml. "
            f"The names {', '.join(ALIASES)} stand for models of the Hub, about 9 GB together."
        )
    request = RunRequest(
        "evomerge",
        {**file, **chosen},
        {"sources": sources, "base": [base] if base else []},
        options.get("data") or about.get("data") or (),
        options.get("output_dir") or about.get("output_dir"),
    )
    named = Finder(Home.default(), lambda line: click.echo(line, err=True))
    with lasting("checking models and data"):
        return submit.plan(request, Lookup({}, named, elsewhere))


def _without(file: Mapping[str, object], chosen: Mapping[str, object]) -> Json:
    """Return a file's settings without those that options give, by their present or former names."""
    meant = {RENAMED.get(name, name) for name in chosen}
    return {name: value for name, value in file.items() if RENAMED.get(name, name) not in meant}


#: merge_method of a genome → its name here, if that differs.
_SAID_BY = {"linear": "task_arithmetic"}
#: Why a key has no effect.
_INSTEAD = {
    "tasks": "fitness is measured on the items of --data, or on built-in ones",
    "limit": "search_windows and search_questions say how many items a generation draws",
    "layer_granularity": "layer_groups says how many groups of layers get genes of their own",
    "normalize": "weights are on task vectors, and how far they add up is searched, too",
    "allow_negative_weights": "weights lie between -0.5 and 1.5",
    "tokenizer_source": "sources share one vocabulary; merge others first with `forge merge`",
}


def read(document: dict[str, object], file: str) -> tuple[Json, list[str]]:
    """Return (settings and models of a genome file, warnings). Raises ConfigError."""
    genome = document.get("genome")
    if not isinstance(genome, dict):
        raise ConfigError(f"{file}: genome is a mapping with models, merge_method and base_model.")
    given_models = genome.get("models")
    if not isinstance(given_models, list):
        raise ConfigError(f"{file}: genome.models is a list of models.")
    models = [_model(entry, f"{file}: genome.models") for entry in given_models]
    base = genome.get("base_model")
    warnings = [
        f"{file}: {where}.override_architecture has no effect: config.json says what a model is."
        for where, entries in (("genome.models", given_models), ("genome.base_model", [base]))
        for entry in entries
        if isinstance(entry, dict) and entry.get("override_architecture")
    ]
    base = None if base is None else _model(base, f"{file}: genome.base_model")
    method = str(genome.get("merge_method", ""))[:LONGEST]
    if method == "slerp" and base in models and len(models) == 2:
        warnings.append(
            f"{file}: genome.base_model {base} is one of the two models that slerp lies between, and "
            "no ancestor: both are sources."
        )
        base = None
    settings: dict[str, object] = {"base_models": [m for m in models if m != base]}
    if base is not None:
        settings["base_model"] = base
    species = _SAID_BY.get(method, method)
    if species in SPECIES:
        settings["species"] = [species]
        if species != method:
            warnings.append(
                f"{file}: merge_method {method}: {species} says all that it says, and more."
            )
    else:
        warnings.append(
            f"{file}: merge_method {method} is not among the techniques that are searched with genes "
            f"({', '.join(SPECIES[:5])}): the usual ones are."
        )
    for where, section in (("genome.", genome), ("", document)):
        for key in section:
            if key not in ("genome", "models", "base_model", "merge_method"):
                why = _INSTEAD.get(key, "a run has nothing that it would say")
                warnings.append(f"{file}: {where}{key} has no effect: {why}.")
    return settings, warnings


def _model(entry: object, where: str) -> str:
    """Return a model's name; mergekit writes a text, or a mapping with `model`. Raises ConfigError."""
    if isinstance(entry, dict):
        if entry.get("lora"):
            raise ConfigError(
                f"{where}: {shown(entry.get('model', entry))} has an adapter (lora). Merge it into "
                "its model first with `forge merge`, and name the folder."
            )
        entry = entry.get("model")
    if isinstance(entry, dict):
        path, revision = entry.get("path"), entry.get("revision")
        if isinstance(path, str):
            if revision is not None and not isinstance(revision, str):
                raise ConfigError(
                    f"{where}: revision {shown(revision)} is no text. Write it in quotes."
                )
            entry = f"{path}@{revision}" if revision else path
    if not isinstance(entry, str) or not entry:
        raise ConfigError(
            f"{where}: a model is a path or Hub id, or {{model: PATH}}, or "
            f"{{model: {{path: PATH, revision: REVISION}}}}, and not {shown(entry)}."
        )
    return entry
