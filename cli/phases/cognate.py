"""`forge cognate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options import dry_run_option, json_option, queue_options, set_option, setting, split

if TYPE_CHECKING:
    from runs.home import Home
    from runs.kinds.asked import Plan


@click.command("cognate")
@click.option("--out", required=True, type=click.Path(), help="The folder for models and items.")
@click.option(
    "--preset",
    type=click.Choice(["mini", "tiny", "small", "25m", "25m-wide"]),
    default="tiny",
    show_default=True,
    help="How large, how long; mini takes seconds, to try the machinery.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--domains",
    help="A specialist each: of code, math, data (these by default), prose, multilingual, chains, "
    "reasoning, memory, general; with --data of its domains, all by default.",
)
@click.option(
    "--optimiser",
    type=click.Choice(["muon", "adamw", "mugrokfast"]),
    help="muon, without --lora the default, has learned more from the same tokens than adamw "
    "(docs/benchmarks.md).",
)
@click.option(
    "--base-model",
    metavar="MODEL",
    help="Train specialists of this model: a folder, Hub id or RUN:ROLE.",
)
@click.option(
    "--lora",
    "rank",
    type=click.IntRange(min=1),
    metavar="RANK",
    help="Train low-rank adapters of this rank for each specialist, which are merged into the weights, "
    "instead of all weights.",
)
@click.option(
    "--data",
    multiple=True,
    metavar="[DOMAIN=]PATH",
    help="Text of your own: a file a domain, or DOMAIN=FOLDER; again for several. hub:OWNER/NAME is a "
    "data set of the Hub.",
)
@set_option
@click.option("--detach", is_flag=True, help="Only submit; another process carries the run on.")
@dry_run_option
@queue_options
@json_option
def cognate_command(
    out: str,
    preset: str,
    seed: int,
    domains: str | None,
    optimiser: str | None,
    base_model: str | None,
    rank: int | None,
    data: tuple[str, ...],
    settings: tuple[str, ...],
    detach: bool,
    dry_run: bool,
    as_json: bool,
    **queued: Any,
) -> None:
    """Train a small base and specialists of it, on text that comes with the program or on yours.

    `tiny` takes a few minutes on two cores. The items to measure on go into OUT/items. The same command
    goes on with the same run after a crash or Ctrl-C. The models are sources of `forge evo` as folders
    or by RUN:ROLE. With --base-model, specialists of a model of your own are trained; --set has the
    rest (`forge settings cognate`).

    \b
    Example:
      forge cognate --out models
      forge evo --base-models models/code,models/math,models/data --base-model models/base
      forge cognate --out mine --base-model my-model --data law=texts/law --data news.jsonl \\
                    --set specialist_tokens=2000000
      forge cognate --out mine --base-model my-model --lora 8 --data law=texts/law --data news.jsonl
    """
    from cli.runs.carry_on import begin
    from runs.home import Home

    home = Home.default()
    chosen = optimiser or ("muon" if rank is None else "adamw")
    config: dict[str, Any] = {"preset": preset, "seed": seed, "optimiser": chosen}
    if rank is not None:
        config |= {"train": "lora", "lora_rank": rank}
    if domains is not None:
        config["domains"] = split(domains)
    config |= dict(map(setting, settings))
    plan = _plan(home, config, base_model, data, Path(out).absolute(), detach)
    begin(home, plan, queued, detach, dry_run, as_json, _key(plan))


def _plan(
    home: Home,
    config: dict[str, Any],
    base: str | None,
    data: tuple[str, ...],
    folder: Path,
    elsewhere: bool,
) -> Plan:
    """Return the plan of the run. Raises ConfigError, DataError, UnavailableError."""
    from runs.kinds.asked import Asked, Lookup
    from weights.storage.model_origin import Finder
    from worker.commands import validate

    named = Finder(home, lambda told: click.echo(told, err=True))
    asked = Asked("cognate", config, {"base": [base]} if base else {}, data, str(folder))
    return validate.plan(asked, Lookup({}, named, elsewhere=elsewhere))


def _key(plan: Plan) -> str:
    """Return the run's key: the same command in the same folder means the same run."""
    base = plan.fields["base"]
    given = {
        **plan.config.model_dump(mode="json", exclude_unset=True),
        "base": base.model_dump(mode="json") if base else None,
        "data": plan.fields["data"],
    }
    return f"cognate {plan.output_dir} {json.dumps(given)}"
