"""Options that say what a merging run is made of."""

from __future__ import annotations

from collections.abc import Callable

import click

from cli.options import set_option


def model_options(function: Callable) -> Callable:
    """Add the options that name a run's models and data to a command."""
    options: list[Callable[[Callable], Callable]] = [
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
        click.option(
            "--strategy", help="Search strategy: elite-loser, auto, tournament, cma-es, nsga2."
        ),
        click.option("--device", help="auto, cpu or cuda:N.  [default: auto]"),
        click.option("--strict", is_flag=True, help="Refuse sources whose settings differ."),
    ]
    for option in reversed(options):
        function = option(function)
    return function
