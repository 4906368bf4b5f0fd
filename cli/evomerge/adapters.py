"""Options and action of `forge merge --adapters`, which merges adapters into an adapter."""

from __future__ import annotations

from pathlib import Path

import click

from agent_forge.cli.options import emit, split, together
from agent_forge.weights.adapters.choices import COMBINATIONS, Combination

#: Options of a merge of adapters.
adapter_options = together(
    click.option(
        "--adapters",
        metavar="A,B,…",
        help="Merge LoRA adapters of one base, folders or Hub ids, into an adapter; give OUT, and no "
        "CONFIG.",
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


def numbers(weights: str | None) -> list[float]:
    """Return the numbers of --weights, an empty list without the option. Raises ConfigError."""
    from agent_forge.runs.errors import ConfigError

    try:
        return [float(word) for word in split(weights)] if weights else []
    except ValueError as error:
        raise ConfigError(f"--weights {weights!r}: give numbers with commas between.") from error


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
    """Merge adapters into an adapter at `out`, and print the result. Raises ConfigError."""
    from agent_forge.runs.errors import ConfigError
    from agent_forge.weights.adapters import merging
    from agent_forge.weights.folders.sources import resolve_adapter

    models = split(adapters)
    shares = numbers(weights) or [1.0] * len(models)
    if method is not None and method not in COMBINATIONS:
        raise ConfigError(
            f"--method {method} merges no adapters. Take one of {', '.join(COMBINATIONS)}."
        )
    how = Combination(method or "svd", density, rank, sign or "total", seed)
    record = merging.merge([Path(resolve_adapter(model).path) for model in models], shares, how, out)
    if as_json:
        emit(record)
        return
    for note in record["notes"]:
        click.echo(f"warning: {note}", err=True)
    click.echo(f"adapter:  {record['folder']} (rank {record['rank']}, {record['modules']} layers)")
