"""`forge cognate`."""

from __future__ import annotations

from pathlib import Path

import click

from cli.options import emit, json_option, split


@click.command("cognate")
@click.option("--out", required=True, type=click.Path(), help="The folder for models and items.")
@click.option(
    "--preset",
    type=click.Choice(["tiny", "small", "25m"]),
    default="tiny",
    show_default=True,
    help="How large, how long.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--domains",
    default="code,math,data",
    show_default=True,
    help="A specialist each: code, math, data, prose, multilingual.",
)
@json_option
def cognate_command(out: str, preset: str, seed: int, domains: str, as_json: bool) -> None:
    """Train a small base and specialists (code, math, data) on text that comes with the program.

    `tiny` takes a few minutes on two cores. The items to measure on go into OUT/items.

    \b
    Example:
      forge cognate --out models
    """
    from evaluation.data.builtin import corpus
    from phases.cognate import create, report
    from phases.cognate.presets import PRESETS
    from phases.cognate.training import Progress
    from runs.errors import ConfigError
    from weights.threads import set_threads

    def trace(p: Progress) -> None:
        click.echo(
            f"{p.phase:5s} step {p.step}/{p.steps}  loss {p.loss:.3f}  "
            f"{p.tokens_per_second:,.0f} tokens/s",
            err=True,
        )

    wanted = split(domains)
    if not wanted or len(set(wanted)) < len(wanted) or not set(wanted) <= set(corpus.KNOWN):
        known = ", ".join(corpus.KNOWN)
        raise ConfigError(f"--domains {domains!r}: give some of {known}, each once, with commas.")
    set_threads()
    folder = Path(out).absolute()
    create.check_folder(folder)
    told = lambda m: click.echo(m, err=True)  # noqa: E731
    made = create.create(folder, PRESETS[preset], seed, told, trace, wanted)
    if as_json:
        emit(made.model_dump())
        return
    for line in report.lines(made):
        click.echo(line)
    click.echo(f"models: {folder}/base, {', '.join(wanted)}; items: {folder}/items")
