"""`forge settings`: what a run may be told, without a run. No torch."""

from __future__ import annotations

import json
from typing import Any

import click

from cli.options import emit, json_option, table


@click.command("settings")
@click.argument("name", default="")
@json_option
def settings_command(name: str, as_json: bool) -> None:
    """List the settings of a run, with their defaults; NAME: those whose name has this in it.

    They stand in the file that `forge evo --config` reads: TOML, JSON or YAML. Names that the source
    documents had for a setting are found too.

    \b
    Example:
      forge settings search_
      forge settings --json
    """
    from evomerge.config import REFUSED, RENAMED, EvoMergeConfig
    from runs.errors import ConfigError

    defaults = EvoMergeConfig().model_dump(mode="json")
    meant = {new for old, new in RENAMED.items() if name and name in old}
    rows = [
        {"name": own, "default": defaults[own], "what": " ".join((field.description or "").split())}
        for own, field in EvoMergeConfig.model_fields.items()
        if name in own or own in meant
    ]
    if not rows:
        why = REFUSED.get(name)
        told = f"is refused: {why}" if why else "is not known. `forge settings` lists them"
        raise ConfigError(f"setting {name} {told}.")
    if as_json:
        emit(rows)
        return
    table(
        ["setting", "default", "what it is"],
        [[row["name"], _said(row["default"]), row["what"]] for row in rows],
    )


def _said(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value)
