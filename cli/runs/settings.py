"""`forge kinds` and `forge settings`: what runs there are and what they may be told. No torch."""

from __future__ import annotations

import json
from typing import Any

import click

from cli.options import emit, json_option, table


@click.command("kinds")
@json_option
def kinds_command(as_json: bool) -> None:
    """List the kinds of run that this program knows.

    \b
    Example:
      forge kinds
    """
    from runs import kinds

    rows = [
        {"name": name, "line": kinds.of(name).line, "unit": kinds.of(name).unit}
        for name in sorted(kinds.table())
    ]
    if as_json:
        emit(rows)
        return
    table(["kind", "what it does", "counted in"], [list(row.values()) for row in rows])


@click.command("settings")
@click.argument("names", metavar="[KIND] [NAME]", nargs=-1)
@json_option
def settings_command(names: tuple[str, ...], as_json: bool) -> None:
    """List the settings of a KIND of run (evomerge by default); NAME: those that have this in the name.

    Settings go into the file that `--config` reads: TOML, JSON or YAML. If only some strategies have a
    setting of a merging run, its line names them; the file has it in the table `search`, or beside the
    others. A setting is also found by its other names (docs/documents.md).

    \b
    Example:
      forge settings search_
      forge settings cognate
      forge settings --json
    """
    from runs import kinds

    kind = names[0] if names and names[0] in kinds.table() else "evomerge"
    rest = names[1:] if names and names[0] in kinds.table() else names
    if len(rest) > 1:
        raise click.UsageError(f"give one NAME, not {len(rest)}.")
    name = rest[0] if rest else ""
    rows = kinds.of(kind).options(name)
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
