"""Tables of the log and their versions (alembic).

Tables that may be dropped at any time (leases, projections) are made by the code that uses them and
have no migrations.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Index, MetaData, inspect, text

from agent_forge.events.database import Database
from agent_forge.events.errors import SchemaError
from agent_forge.events.store import EVENTS

#: The revision that this program works with: the newest under `migrations/versions`.
HEAD = "0001"


def revision(connection: Connection) -> str | None:
    """Return the database's revision; "" for tables older than revisions, None without tables."""
    tables = inspect(connection).get_table_names()
    if "alembic_version" in tables:
        version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        return str(version) if version is not None else None
    return "" if "events" in tables else None


def prepare(database: Database, upgrade: bool) -> None:
    """Create the tables of an empty database; upgrade older ones if `upgrade`, else raise.

    Raises SchemaError for every other revision than HEAD. Missing guards are put back.
    """
    with database.engine.connect() as connection:
        version = revision(connection)
        guarded = version == HEAD and database.refuses_changes(connection)
    if guarded:
        return
    if version == HEAD:
        with database.migrating() as connection:
            _guard(database, connection)
        return
    if version is None or (upgrade and _older(version)):
        upgrade_to_head(database)
        return
    if _older(version):
        raise SchemaError(database.name, version, HEAD, "upgrade it with `forge db upgrade`")
    raise SchemaError(
        database.name, version, HEAD, "it was written by a newer version: upgrade agent-forge"
    )


def _older(version: str) -> bool:
    return version < HEAD


def upgrade_to_head(database: Database) -> tuple[str | None, str]:
    """Upgrade the tables to HEAD; return (old revision, HEAD). Raises SchemaError if newer."""
    from alembic import command
    from alembic.config import Config

    with database.migrating() as connection:
        before = revision(connection)
        if before is not None and before > HEAD:
            why = "it was written by a newer version: upgrade agent-forge"
            raise SchemaError(database.name, before, HEAD, why)
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, HEAD)
        _guard(database, connection)
    return before, HEAD


def _guard(database: Database, connection: Connection) -> None:
    for statement in database.append_only:
        connection.exec_driver_sql(statement)


def check(database: Database) -> list[str]:
    """Return a line for each fault of the tables or the database's files; empty if there is none."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with database.reading() as connection:
        version = revision(connection)
        if version != HEAD:
            return [f"the revision is {version or 'none'}, not {HEAD}: run `forge db upgrade`"]
        problems: list[str] = []
        if not database.refuses_changes(connection):
            problems.append("the guards that refuse UPDATE and DELETE are missing or switched off")
        first = text("version = 1")
        whole = EVENTS.to_metadata(MetaData())
        Index("events_first", whole.c.stream, sqlite_where=first, postgresql_where=first)

        def is_compared(name: str | None, kind: str, _parents: object) -> bool:
            return kind != "table" or name == EVENTS.name

        context = MigrationContext.configure(connection, opts={"include_name": is_compared})
        for difference in compare_metadata(context, whole.metadata):
            problems.append(f"the tables differ from this program's: {difference}")
        return problems + database.damage(connection)
