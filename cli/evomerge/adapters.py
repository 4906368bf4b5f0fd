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
        help="Merge LoRA adapters of one base, folders or Hub ids, into an adapter; give OUT, and no "
        "CONFIG.",
    ),
    click.option(
        "--weights", metavar="W,W,…", help="With --adapters: a weight for each.  [default: 1]"
    ),
    click.option(
        "--method",
        type=click.Choice(COMBINATIONS),
        help="With --adapters: as in peft's add_weighted_adapter.  [default: svd]",
    ),
    click.option(
        "--density", type=float, help="With --adapters: the share of the numbers that is kept."
    ),
    click.option(
        "--rank",
        type=click.IntRange(1),
        help="With --adapters: the rank of svd.  [default: the largest of the adapters]",
    ),
    click.option(
        "--sign",
        type=click.Choice(["total", "frequency"]),
        help="With --adapters: ties elects signs by the sum of values, or of signs.  [default: total]",
    ),
)


def adapter_options(command: Command) -> Command:
    """Return the command with the options of a merge of adapters."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def asked(
    options: Mapping[str, Any], first: str | None, second: str | None, others: Iterable[Any]
) -> bool:
    """Return True if adapters are to be merged, False if a config is.

    `first` and `second` are the arguments: OUT, or CONFIG and OUT; `others` are options of a config.
    Raises ConfigError for options of the other merge, and UsageError for a missing argument.
    """
    from runs.errors import ConfigError

    if options["adapters"] is not None:
        if second is not None or any(others):
            raise ConfigError(
                "with --adapters leave out CONFIG, --device, --threads, --check, --model, --dry-run "
                "and --strict."
            )
        if first is None:
            raise click.UsageError("Missing argument 'OUT'.")
        return True
    if wrong := [name for name, value in options.items() if value is not None]:
        raise ConfigError(f"--{wrong[0]} is an option of --adapters: a config says its own.")
    for name, argument in (("CONFIG", first), ("OUT", second)):
        if argument is None:
            raise click.UsageError(f"Missing argument '{name}'.")
    return False


def merge_adapters(
    out: Path,
    seed: int,
    as_json: bool,
    adapters: str,
    weights: str | None,
    method: str | None,
    density: float | None,
    rank: int | None,
    sign: str | None,
) -> None:
    """Merge adapters into an adapter, and say so. Raises ConfigError for a weight without a number."""
    from runs.errors import ConfigError
    from weights.adapters import merging
    from weights.folders.sources import resolve_adapter

    models = split(adapters)
    try:
        shares = [float(word) for word in split(weights)] if weights else [1.0] * len(models)
    except ValueError as error:
        raise ConfigError(f"--weights {weights!r}: give numbers with commas between.") from error
    how = Combination(method or "svd", density, rank, sign or "total", seed)
    record = merging.merge(
        [Path(resolve_adapter(model).path) for model in models], shares, how, out
    )
    if as_json:
        emit(record)
        return
    for note in record["notes"]:
        click.echo(f"warning: {note}", err=True)
    click.echo(f"adapter:  {record['folder']} (rank {record['rank']}, {record['modules']} layers)")
