"""Database of a log on PostgreSQL: locks, guards and errors.

Positions come from a sequence, and a row that took its number first may be committed last. A reader
that follows positions would miss such a row. So every append takes one advisory lock before it
inserts and holds the lock until its commit (measured without the lock: 3,201 of 25,000 events never
seen by a follower).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from sqlalchemy import Connection, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DatabaseError, OperationalError
from typing_extensions import override

from agent_forge.events import schema
from agent_forge.events.database import Database, Values
from agent_forge.events.errors import StoreUnavailableError
from agent_forge.events.store import EventStore

if TYPE_CHECKING:
    import psycopg

#: Keys of the advisory locks: any two numbers that no other client of the database uses.
APPEND_LOCK = 7_306_071_001
MIGRATE_LOCK = 7_306_071_002

#: The longest time that a client may be idle in a transaction.
IDLE = "30s"

_LOCK = "SELECT pg_advisory_xact_lock(%s)"

_REFUSE = """CREATE OR REPLACE FUNCTION events_append_only() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'the log is append-only'; END $$"""


class Postgres(Database):
    """Database of a log on a PostgreSQL server."""

    mark = "%s"
    clock = "extract(epoch from clock_timestamp())::float8"
    append_only = (
        _REFUSE,
        """CREATE OR REPLACE TRIGGER events_no_update BEFORE UPDATE OR DELETE ON events
           FOR EACH ROW EXECUTE FUNCTION events_append_only()""",
        """CREATE OR REPLACE TRIGGER events_no_truncate BEFORE TRUNCATE ON events
           FOR EACH STATEMENT EXECUTE FUNCTION events_append_only()""",
        "REVOKE UPDATE, DELETE, TRUNCATE ON events FROM PUBLIC, CURRENT_USER",
    )

    def __init__(self, url: str) -> None:
        address = make_url(url).set(drivername="postgresql+psycopg")
        engine = create_engine(
            address,
            connect_args={"connect_timeout": 10, "application_name": "agent-forge"},
            isolation_level="READ COMMITTED",
        )
        event.listen(engine, "connect", _prefer_indexes)
        super().__init__(engine, address.render_as_string(hide_password=True))

    @override
    def begin_append(self, cursor: DBAPICursor) -> None:
        cursor.execute(_LOCK, (APPEND_LOCK,))

    @override
    @contextmanager
    def migrating(self) -> Generator[Connection]:
        with self.writing() as connection:
            connection.exec_driver_sql(_LOCK, (MIGRATE_LOCK,))
            yield connection

    @override
    def insert(self, cursor: DBAPICursor, statement: str, rows: Sequence[Values]) -> Sequence[int]:
        statement += " RETURNING position"
        if len(rows) == 1:
            return [cursor.execute(statement, rows[0]).fetchone()[0]]
        driver_cursor = _of_driver(cursor)
        driver_cursor.executemany(statement.encode(), rows, returning=True)
        return [row[0] for result in driver_cursor.results() for row in result.fetchall()]

    @override
    def gone(self, error: DatabaseError) -> bool:
        lost = error.connection_invalidated or error.statement is None
        return isinstance(error, OperationalError) and lost

    @override
    def unavailable(self, error: Exception) -> StoreUnavailableError:
        words = str(getattr(error, "orig", error)).split()
        return StoreUnavailableError(self.name, " ".join(words), StoreUnavailableError.SERVER)

    @override
    def refuses_changes(self, connection: Connection) -> bool:
        query = """SELECT count(*) FROM pg_trigger WHERE tgrelid = 'events'::regclass
                   AND NOT tgisinternal AND tgenabled = 'O'"""
        return connection.exec_driver_sql(query).scalar() == 2

    @override
    def damage(self, connection: Connection) -> list[str]:
        """Read every row, because the server checks its own pages when it reads them; return []."""
        connection.exec_driver_sql("SELECT max(length(data)), max(hash) FROM events")
        return []

    @override
    def last_position(self, connection: Connection) -> int | None:
        """Return None: a sequence also counts rolled-back positions, so it tells nothing."""
        return None


def _of_driver(cursor: object) -> psycopg.Cursor:
    """Return the same cursor, typed as psycopg's, which has methods that other drivers lack."""
    import psycopg  # here: logs on SQLite are opened without it

    assert isinstance(cursor, psycopg.Cursor)
    return cast("psycopg.Cursor", cursor)


def _prefer_indexes(connection: psycopg.Connection, _record: object) -> None:
    """Make a new connection prefer indexes, and limit its idle time in a transaction.

    Prepared statements keep their plan, and a plan made for an empty log would read the whole table.
    """
    connection.execute("SET enable_seqscan = off")  # if an index can answer
    # A client that was stopped in the middle of an append must not block the others for ever.
    connection.execute(f"SET idle_in_transaction_session_timeout = '{IDLE}'")
    connection.commit()


def open_store(url: str) -> EventStore:
    """Return the store of the log at a PostgreSQL URL; create the tables of an empty database.

    Raises StoreUnavailableError, and SchemaError if the tables are of another version.
    """
    database = Postgres(url)
    try:
        schema.prepare(database, upgrade=False)
        return EventStore(database)
    except (DatabaseError, OperationalError) as error:
        database.close()
        raise database.unavailable(error) from error
    except BaseException:
        database.close()
        raise
