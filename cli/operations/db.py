"""`forge db`: the tables of the log."""

from __future__ import annotations

import sys
from contextlib import closing

import click

from agent_forge.cli.options import SuggestingGroup, emit, home, json_option
from agent_forge.runs.system.plain_text import visible


@click.group("db", cls=SuggestingGroup)
def db_command() -> None:
    """Manage the database: upgrade its tables, check them, rebuild the tables made from the log.

    FORGE_DATABASE_URL chooses it: sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME. Without
    it the log is a SQLite file in the home folder.

    \b
    Example:
      forge db check
    """


@db_command.command("upgrade")
@json_option
def upgrade_command(as_json: bool) -> None:
    """Upgrade the tables of an older version to this version's. Safe to repeat.

    \b
    Example:
      forge db upgrade
    """
    from agent_forge.events import schema

    with closing(home().database_alone()) as database:
        before, after = schema.upgrade_to_head(database)
    if as_json:
        emit({"before": before, "after": after})
        return
    change = "nothing to do" if before == after else f"upgraded from {before or 'no tables'}"
    click.echo(f"{database.name}: revision {after}, {change}")


@db_command.command("check")
@json_option
def check_command(as_json: bool) -> None:
    """Check the tables, the guards against changes, and the database's own pages.

    Lists the events that no table could be made from, too. Exit code 1 if something is wrong. Hash
    chains are checked by forge verify --all.

    \b
    Example:
      forge db check
    """
    from agent_forge.events import schema
    from agent_forge.events.projection import gaps

    with closing(home().database_alone()) as database:
        problems = [*schema.check(database), *gaps(database)]
    if as_json:
        emit({"database": database.name, "revision": schema.HEAD, "problems": problems})
    else:
        for problem in problems:
            click.echo(f"error: {visible(problem)}")
        if not problems:
            click.echo(f"{database.name}: revision {schema.HEAD}, ok")
    if problems:
        sys.exit(1)


@db_command.command("rebuild")
@json_option
def rebuild_command(as_json: bool) -> None:
    """Drop the tables that are made from the log (runs, candidates, …) and make them again.

    \b
    Example:
      forge db rebuild
    """
    from agent_forge.events.projection import rebuild
    from agent_forge.runs.lists.model_registry import RegisteredModels
    from agent_forge.runs.lists.projections import Runs

    with closing(home().open_store()) as store:
        count = rebuild(store, Runs())
        rebuild(store, RegisteredModels())
    emit({"events": count}) if as_json else click.echo(f"made from {count} events")
