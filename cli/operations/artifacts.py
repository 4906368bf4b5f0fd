"""`forge artifacts`: the store that machines without a common disk share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agent_forge.cli.options import SuggestingGroup, emit, json_option, table

if TYPE_CHECKING:
    from agent_forge.weights.storage.artifact_store import Vault


@click.group("artifacts", cls=SuggestingGroup)
def artifacts_command() -> None:
    """List what the shared store (FORGE_ARTIFACT_STORE) has, remove it, or encrypt it with a new key.

    \b
    Example:
      forge artifacts list
      forge artifacts rotate
    """


def _vault(plain: bool = False) -> Vault:
    from agent_forge.runs.home import Home
    from agent_forge.weights.storage.artifact_store import open_vault

    return open_vault(Home.default(), plain)


@artifacts_command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the names in the store: digests, `model-` with a content address, `snapshot-` with a hash.

    Snapshots are those of trainings that go on, or may.

    \b
    Example:
      forge artifacts list
    """
    names = sorted(_vault().names())
    if as_json:
        emit(names)
    else:
        table(["name"], [[name] for name in names])


@artifacts_command.command("rotate")
@click.option(
    "--plain",
    is_flag=True,
    help="Encrypt files without encryption, too: once, when a store gets its first key. All files in "
    "the store are then trusted.",
)
@json_option
def rotate_command(plain: bool, as_json: bool) -> None:
    """Encrypt with the first key what an older key has encrypted. May be repeated.

    Files without encryption are refused: every user who can write to the store may have put them there.

    \b
    Example:
      forge artifacts rotate
      forge artifacts rotate --plain
    """
    done = _vault(plain).rotate()
    emit({"rotated": done}) if as_json else click.echo(f"{done} artifacts are under the first key now")


@artifacts_command.command("remove")
@click.argument("names", nargs=-1, required=True)
@json_option
def remove_command(names: tuple[str, ...], as_json: bool) -> None:
    """Remove artifacts from the store: what is needed again is put or built again.

    NAMES are as `forge artifacts list` prints them.

    \b
    Example:
      forge artifacts remove 3b0c2f0f5ca34d1a8f51d4d0d1bb12b0f6a7fd1fbc3f0d6a0f4b3c1a5d5e7a90
    """
    vault = _vault()
    removed = sum([vault.remove(name) for name in names])
    emit({"removed": removed}) if as_json else click.echo(f"{removed} artifacts were removed")
