"""What is particular to PostgreSQL.

Positions come from a sequence, and a row that took its number first may be committed last: a reader
that follows positions would pass it by. So every append takes one advisory lock before it inserts and
holds it to its commit (measured without it: 3,201 of 25,000 events never seen by a follower).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, create_engine, event, make_url
from sqlalchemy.exc import DatabaseError, OperationalError

from events import schema
from events.database import Database
from events.errors import StoreUnavailableError
from events.store import EventStore

#: Keys of the advisory locks, any two numbers that nobody else in the database uses.
APPEND_LOCK = 7_306_071_001
MIGRATE_LOCK = 7_306_071_002

#: How long a client may do nothing in the middle of a transaction.
IDLE = "30s"

_LOCK = "SELECT pg_advisory_xact_lock(%s)"

_REFUSE = """CREATE OR REPLACE FUNCTION events_append_only() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'the log is append-only'; END $$"""


class Postgres(Database):
    """A log on a PostgreSQL server."""

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
        event.listen(engine, "connect", _by_index)
        super().__init__(engine, address.render_as_string(hide_password=True))

    def begin_append(self, cursor: Any) -> None:
        """Begin, and wait until no other transaction appends."""
        self._lock(cursor, APPEND_LOCK)

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """A writing transaction, once nobody else changes tables."""
        with self.writing() as connection:
            connection.exec_driver_sql(_LOCK, (MIGRATE_LOCK,))
            yield connection

    def _lock(self, cursor: Any, key: int) -> None:
        cursor.execute(_LOCK, (key,))

    def insert(
        self, cursor: Any, statement: str, rows: Sequence[tuple[Any, ...]]
    ) -> Sequence[int | None]:
        """Several rows are sent together and inserted one after the other."""
        statement += " RETURNING position"
        if len(rows) == 1:
            found = [cursor.execute(statement, rows[0]).fetchone()]
        else:
            cursor.executemany(statement, rows, returning=True)
            found = [result.fetchone() for result in cursor.results()]
        return [row[0] if row else None for row in found]

    def insert_alone(self, cursor: Any, statement: str, row: tuple[Any, ...]) -> int | None:
        """Lock and insert in one statement, which is one way there and back less.

        What the statement sees is from before the lock was given. That is enough: rows are never
        changed, so one that it saw is still there, and one that it did not see yet is refused by the
        unique constraints, which look at everything. The position is drawn for a row that comes out of
        `turn`, and so after the lock.
        """
        found = cursor.execute(self._in_turn(statement) + " RETURNING position", row).fetchone()
        return found[0] if found else None

    def _in_turn(self, statement: str) -> str:
        """An INSERT … SELECT … WHERE that takes the lock of appends first."""
        insert, where, condition = statement.partition(" WHERE ")
        turn = f"WITH turn AS MATERIALIZED (SELECT pg_advisory_xact_lock({APPEND_LOCK}))"
        return f"{turn} {insert} FROM turn{where}{condition}"

    def gone(self, error: DatabaseError) -> bool:
        """The connection broke, or none could be made."""
        lost = error.connection_invalidated or error.statement is None
        return isinstance(error, OperationalError) and lost

    def unavailable(self, error: Exception) -> StoreUnavailableError:
        """The error that users see: the server's own words, on one line."""
        words = str(getattr(error, "orig", error)).split()
        return StoreUnavailableError(self.name, " ".join(words), StoreUnavailableError.SERVER)

    def refuses_changes(self, connection: Connection) -> bool:
        """Whether both triggers are there and switched on."""
        query = """SELECT count(*) FROM pg_trigger WHERE tgrelid = 'events'::regclass
                   AND NOT tgisinternal AND tgenabled = 'O'"""
        return connection.exec_driver_sql(query).scalar() == 2

    def damage(self, connection: Connection) -> list[str]:
        """The server checks its own pages when it reads them: read every row."""
        connection.exec_driver_sql("SELECT max(length(data)), max(hash) FROM events")
        return []

    def last_position(self, connection: Connection) -> int | None:
        """A sequence counts what was rolled back too, so it tells nothing."""
        return None


def _by_index(connection: Any, _record: Any) -> None:
    """Prepared statements keep their plan, and one made for an empty log would read all of it."""
    connection.execute("SET enable_seqscan = off")  # wherever an index will do
    # A client that was stopped in the middle of an append must not hold everybody up for ever.
    connection.execute(f"SET idle_in_transaction_session_timeout = '{IDLE}'")
    connection.commit()


def open_store(url: str) -> EventStore:
    """Open the log at a PostgreSQL URL; an empty database gets its tables.

    Raises StoreUnavailableError, and SchemaError where the tables are of another version.
    """
    database: Any = None
    try:
        database = Postgres(url)
        schema.prepare(database, upgrade=False)
        return EventStore(database)
    except (DatabaseError, OperationalError) as error:
        database.close()
        raise database.unavailable(error) from error
    except BaseException:
        if database is not None:
            database.close()
        raise
