"""`forge merge --adapters`: options of a merge of adapters into an adapter, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from cli.options import emit, split
from weights.adapters.choices import COMBINATIONS, Combination

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--adapters",
        metavar="A,B,…",
        help="Merge LoRA adapters of one base, folders or Hub ids, into an adapter: OUT alone.",
    ),
    click.option("--weights", metavar="W,W,…", help="Of --adapters: a weight each; 1 without."),
    click.option(
        "--method",
        type=click.Choice(COMBINATIONS),
        default="svd",
        show_default=True,
        help="Of --adapters: as peft's add_weighted_adapter.",
    ),
    click.option(
        "--density", type=float, help="Of --adapters: the share of the numbers that is kept."
    ),
    click.option(
        "--rank",
        type=click.IntRange(1),
        help="Of --adapters: the rank of svd; their largest without.",
    ),
    click.option(
        "--sign",
        type=click.Choice(["total", "frequency"]),
        default="total",
        show_default=True,
        help="Of --adapters: how ties elects signs, by values or by their signs.",
    ),
)


def adapter_options(command: Command) -> Command:
    """Return the command with the options of a merge of adapters."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def asked(options: Mapping[str, Any], out: str | None, others: Iterable[Any]) -> bool:
    """Return True if adapters are to be merged, False if a config is.

    `others` are options of a config. Raises ConfigError for options of the other merge, and UsageError
    for a config without OUT.
    """
    from runs.errors import ConfigError

    if options["adapters"] is not None:
        if out is not None or any(others):
            raise ConfigError(
                "--adapters takes OUT, the options that are of it, --seed and --json."
            )
        return True
    if any(options[name] is not None for name in ("weights", "density", "rank")):
        raise ConfigError(
            "--weights, --density and --rank are of --adapters: a config says its own."
        )
    if out is None:
        raise click.UsageError("Missing argument 'OUT'.")
    return False


def merge_adapters(
    out: Path,
    seed: int,
    as_json: bool,
    adapters: str,
    weights: str | None,
    method: str,
    density: float | None,
    rank: int | None,
    sign: str,
) -> None:
    """Merge adapters into an adapter, and say so. Raises ConfigError for a weight without a number."""
    from runs.errors import ConfigError
    from weights.adapters import merging
    from weights.folders.sources import resolve

    models = split(adapters)
    try:
        shares = [float(word) for word in split(weights)] if weights else [1.0] * len(models)
    except ValueError as error:
        raise ConfigError(f"--weights {weights!r}: give numbers with commas between.") from error
    how = Combination(method, density, rank, sign, seed)
    told = merging.merge([Path(resolve(model).path) for model in models], shares, how, out)
    if as_json:
        emit(told)
        return
    for note in told["notes"]:
        click.echo(f"warning: {note}", err=True)
    click.echo(f"adapter:  {told['folder']} (rank {told['rank']}, {told['modules']} layers)")
