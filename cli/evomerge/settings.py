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

    They stand in the file that `forge evo --config` reads: TOML, JSON or YAML. A setting that only some
    strategies have names them; it stands in the table `search`, or beside the others. Names that the
    source documents had for a setting are found too.

    \b
    Example:
      forge settings search_
      forge settings --json
    """
    from evomerge.config import REFUSED, RENAMED
    from evomerge.settings_table import settings
    from runs.errors import ConfigError

    meant = {new for old, new in RENAMED.items() if name and name in old}
    rows = [
        {
            "name": setting.name,
            "group": setting.group,
            "default": setting.default,
            "what": setting.description,
            "strategies": list(setting.strategies),
        }
        for setting in settings()
        if name in setting.name or setting.name in meant
    ]
    if not rows:
        why = REFUSED.get(name)
        told = f"is refused: {why}" if why else "is not known. `forge settings` lists them"
        raise ConfigError(f"setting {name} {told}.")
    if as_json:
        emit(rows)
        return
    table(
        ["setting", "strategies", "default", "what it is"],
        [
            [row["name"], ", ".join(row["strategies"]), _said(row["default"]), row["what"]]
            for row in rows
        ],
    )


def _said(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value)
