"""`--dry-run` of a command that begins a run: what the run will cost here. Nothing is recorded."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cli.options import emit, tell

if TYPE_CHECKING:
    from runs.kinds.asked import Plan


def show(plan: Plan, detach: bool, as_json: bool) -> None:
    """Try the work of a run and print time, disk and memory, and what each number is derived from.

    Raises UsageError with `detach`, and the errors of a start.
    """
    import tempfile
    from pathlib import Path

    from runs import kinds
    from runs.system.durations import duration, size
    from weights.storage.weight_cache import Artifacts

    if detach:
        raise click.UsageError("--dry-run starts nothing: leave out --detach.")
    kind = kinds.of(plan.kind)
    submitted = kind.submitted(run="dry-run", owner="", config=plan.config, **plan.fields)
    click.echo("trying the work here; a minute or so", err=True)
    with tempfile.TemporaryDirectory() as folder:
        cache = Artifacts(Path(folder) / "artifacts")
        forecast = kind.forecast(submitted, cache, Path(folder) / "models")
    amounts = {
        "time": (forecast.seconds, duration),
        "disk": (forecast.disk, size),
        "memory": (forecast.memory, size),
    }
    if as_json:
        emit({name: asdict(amount) for name, (amount, _) in amounts.items()})
        return
    for name, (amount, words) in amounts.items():
        value = "not known" if amount.value is None else words(amount.value)
        tell(f"{name:7s} {value}: {amount.how}")
