"""`forge artifacts`: the store that machines without a common disk share."""

from __future__ import annotations

from typing import Any

import click

from cli.options import emit, json_option, table


@click.group("artifacts")
def artifacts_command() -> None:
    """List what the shared store (FORGE_ARTIFACT_STORE) has, or encrypt it with a new key.

    \b
    Example:
      forge artifacts list
      forge artifacts rotate
    """


def _vault() -> Any:
    from evomerge.home import Home
    from worker.vault import open_vault

    return open_vault(Home.default())


@artifacts_command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """The digests of everything in the store.

    \b
    Example:
      forge artifacts list
    """
    names = sorted(_vault().names())
    if as_json:
        emit(names)
    else:
        table(["digest"], [[name] for name in names])


@artifacts_command.command("rotate")
@json_option
def rotate_command(as_json: bool) -> None:
    """Encrypt with the first key what an older one, or none, has encrypted. May be repeated.

    \b
    Example:
      forge artifacts rotate
    """
    done = _vault().rotate()
    emit({"rotated": done}) if as_json else click.echo(
        f"{done} artifacts are under the first key now"
    )
